"""The engine of bulk work: Spark, or this process."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from headrace.connector.replay.delivery import Halted, Work, never
from headrace.connector.replay.errors import SparkMissingError
from headrace.connector.replay.execution import Begun, Ended, GoOn, Performer, always
from headrace.connector.replay.framing.framed_shards import Begins, framed
from headrace.connector.replay.framing.one_pass import deliver_together, passes_of
from headrace.connector.replay.shards import OverShards, Shard
from headrace.plugins.errors import install_hint

T = TypeVar("T")

NO_SPARK: Final = "none"


class Gatherer(Protocol):
    """Runs tasks, several at once."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
        """Return the results in order.

        Raises:
            ShardFailedError: a task died every time.

        """


class Once(Protocol):
    """Reads the logs of shards once, for tasks of these shards."""

    def __call__(
        self, shards: Sequence[Shard], *, begins: Begins | None = None
    ) -> contextlib.AbstractContextManager[OverShards]:
        """Yield a runner of the tasks; *begins* as in `framing_of`."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Delivers shards, and gathers the results of tasks; `width` tasks run at once."""

    perform: Performer
    gather: Gatherer
    once: Once
    width: int = 1


@contextlib.contextmanager
def engine(master: str | None, go_on: GoOn = always) -> Iterator[Engine]:
    """Yield Spark at *master*, or this process if *master* is `none`.

    Spark's jobs are cancelled when *go_on*, called on the caller's thread, returns False.

    Raises:
        SparkMissingError: Spark is not installed, or does not start.

    """
    if master == NO_SPARK:
        yield Engine(perform_here, gather_here, once_here)
        return
    try:
        from headrace.connector.replay import session  # noqa: PLC0415 (an extra)
    except ImportError as error:
        hint = f"`--master none` does without it; {install_hint('spark')}"
        raise SparkMissingError(f"pyspark cannot be imported: {error}", hint=hint) from error
    with session.session(master) as spark:
        yield Engine(
            partial(session.perform, spark, go_on=go_on),
            partial(session.gather, spark, go_on=go_on),
            partial(session.once, spark, go_on=go_on),
            session.width(spark),
        )


def perform_here(
    works: Sequence[Work], *, begun: Begun, ended: Ended, halted: Halted = never
) -> None:
    """Deliver shards here: for little work, and without Java.

    Works that may be *halted* are delivered one after another, so that shards delivered before a
    halt are not delivered again. A halt ends the call; the report of an unfinished work says so.
    """
    passes = passes_of(works, 1) if halted is never else ()
    for each in passes:
        for work in each:
            begun(work)
        for work, report in zip(each, deliver_together(each), strict=True):
            ended(work, report)
    if passes:
        return
    with framed([work.shard for work in works], halted=halted) as shards:
        for work, shard in zip(works, shards, strict=True):
            if halted(0):
                return
            begun(work)
            report = replace(work, shard=shard).unless(halted)
            if report.is_halted:
                return
            ended(work, report)


def gather_here(tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
    """Return the results of *tasks*, which run one after another."""
    return [task() for task in tasks]


@contextlib.contextmanager
def once_here(
    shards: Sequence[Shard],
    *,
    begins: Begins | None = None,
    gather: Gatherer = gather_here,
    halted: Halted = never,
) -> Iterator[OverShards]:
    """Read the logs of *shards* once; yield a function that calls *gather* with their tasks.

    Raises:
        RunHaltedError: it was *halted* before all was read.

    """
    with framed(shards, sparing=False, begins=begins, halted=halted) as read:
        files = {shard.split: shard.framed for shard in read}

        def over(make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]) -> Sequence[T]:
            return gather([make(replace(shard, framed=files[shard.split])) for shard in of])

        yield over
