"""Reads a part of a lagging split up to a position, in the pipeline of a worker. Needs no Spark.

A task agrees, encodes, submits, settles and retries as a worker does, but commits to a state file
of its own, which it deletes when it ends. The driver commits the result to the job's state.
"""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from headrace.connector.foundation.clock import ThreadWake
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.processes import this_process
from headrace.connector.replay.delivery import sink_job
from headrace.connector.replay.errors import LogShortError
from headrace.connector.replay.shards import opened
from headrace.connector.replay.stream.microbatches import Part, is_short
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.making import made_sink
from headrace.connector.runtime.messages import Closed, Gain, Idled, Stop
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.runtime.schemas import encoder_of
from headrace.connector.runtime.splits.ownership import Lease
from headrace.connector.runtime.splits.split_task import DeliveryResult, Surroundings
from headrace.connector.runtime.starting import in_ms, limits_of
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import Counters, Loss
from headrace.connector.stores.job import Job
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Context, EncodedPosition, HeadraceError, RecordSchema, Source

_FOR_EVER_MS: Final = 1 << 60  # The driver renews the lease, and ignores a task after losing it.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """The result of a task: the position that it reached, and the counters and losses up to it."""

    position: EncodedPosition | None = None
    counters: Counters = field(default_factory=dict)
    losses: Sequence[Loss] = ()
    schemas: Sequence[RecordSchema] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWork:
    """A part of a split, the target of its records, and the token under which they are sent."""

    job_description: ClassVar[str] = "catch up with splits that lag"

    part: Part
    sink: Mapping[str, Any] = field(repr=False)
    runtime: RuntimeConfig
    token: int

    def __call__(self) -> PartReport:
        """Read the part. The report has an error of headrace, which is not raised. Blocking."""
        shard = self.part.shard
        try:
            with (
                tempfile.TemporaryDirectory(prefix="headrace-part-") as folder,
                opened(shard) as source,
            ):
                job, context = sink_job(self.sink, shard.source.job, Path(folder), self.runtime)
                return self._read(source, job, context)
        except HeadraceError as error:
            return PartReport(problem=f"{error.code}: {error}")

    def _read(self, source: Source, job: Job, context: Context) -> PartReport:
        split = self.part.shard.split
        was_short = is_short(source, self.part)
        # The pipeline closes it, if it starts.
        with contextlib.closing(_State.begun(job, self)) as state:
            _run(source, job, context, state)
        if was_short or is_short(source, self.part):
            raise LogShortError("the logs end before the chunk does", place=f"split {split}")
        with contextlib.closing(SqliteStore.open(job.state, job.name)) as kept:
            (found,) = kept.states()
            return PartReport(
                position=found.position,
                counters=found.counters,
                losses=[each.loss for each in kept.losses()],
                schemas=list(state.schemas_seen.values()),
            )


class _State(SqliteStore):
    """The state of a task, with a lease on its part, and the schemas of its records."""

    schemas_seen: dict[bytes, RecordSchema]
    lease: Lease
    owner: str

    @classmethod
    def begun(cls, job: Job, work: PartWork) -> "_State":
        """Return a state at the start of the part, claimed with the token of the driver."""
        shard, owner = work.part.shard, this_process()
        made = cls.scratch(job.state, job.name)
        made.schemas_seen = {}
        made.register([shard.split])
        if shard.resume is not None:
            made.reposition({shard.split: shard.resume})
        made.state_copies().raise_token(shard.split, work.token - 1)
        made.enroll(owner)
        made.claim(owner.worker, made.leases(), 0)
        made.lease = Lease(shard.split, work.token, deadline_ms=_FOR_EVER_MS, margin_ms=0)
        made.owner = owner.worker
        return made

    def put_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """Remember the schemas for the driver."""
        self.schemas_seen.update((schema.schema_id, schema) for schema in schemas)


def _run(source: Source, job: Job, context: Context, state: _State) -> None:
    """Run a worker's pipeline until all is read, settled and committed.

    Raises:
        HeadraceError: the part cannot be read, or the sink refuses its records.

    """
    sink = made_sink(job, context)
    ended: list[HeadraceError] = []

    def around(post: Callable[[DeliveryResult], None]) -> Surroundings:
        encoder = encoder_of(job, context, sink, source.origin)
        return Surroundings(
            source=source,
            writers=Writers(sink, context.clock),
            encoder=encoder,
            store=state,
            clock=context.clock,
            log=context.log,
            job=job.name,
            worker=state.owner,
            # A worker writes the topic of dead letters, after the driver has committed them.
            errors=replace(ErrorPolicy.of_job(job), topic="", budget_records=None),
            settle_ms_max=in_ms(job.runtime.settle_seconds_max),
            post=post,
        )

    def reported(message: Closed | Idled) -> None:
        if isinstance(message, Closed) and message.error is not None:
            ended.append(message.error)
        pipeline.command(Stop())

    pipeline = Pipeline(around, limits_of(job), ThreadWake(), reported, until_idle=True)
    pipeline.command(Gain(state.lease))
    pipeline.run()
    for error in ended:
        raise error
