"""Mistakes in the options of a frame: named when it is loaded, and shown without a Python trace."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from headrace.connector.replay.errors import bad_option
from headrace.plugins import ConfigError, HeadraceError, Problem
from headrace.plugins.errors import meant

# By it pyspark leaves out the trace of its Python process, which ends with the error.
NO_TRACE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Have Spark show an error of ours by what it says: where and what, and the hint.

    Decorates what Spark calls in a Python process of its own.
    """
    try:
        yield
    except HeadraceError:
        os.environ[NO_TRACE] = "1"
        raise


def check_options(source: str, options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options that *source* does not have: a user would believe that they work.

    Raises:
        ConfigError: with all these options.

    """
    problems = [
        Problem(
            name,
            f"is not an option of {source}",
            meant(name.lower(), known, f"there are {', '.join(known)}"),
        )
        for name in options
        if name.lower() not in known
    ]
    if problems:
        raise ConfigError(problems)


def check_writing(mode: str, missing: Sequence[str], *, overwrite: bool, columns: str) -> None:
    """Refuse to write a frame that has *missing* columns, or that is to replace what is there.

    Raises:
        ConfigError: with *mode*, the call that is right, or with the *columns* that are needed.

    """
    if overwrite:
        raise bad_option("mode", "a sink cannot be overwritten", mode)
    if missing:
        raise bad_option("schema", f"columns {', '.join(sorted(missing))} are missing", columns)
