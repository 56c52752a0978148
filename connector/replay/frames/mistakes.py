"""Mistakes in a frame's options: reported when it is loaded, without a Python traceback."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from headrace.connector.replay.errors import bad_option
from headrace.plugins import ConfigError, HeadraceError, Problem
from headrace.plugins.errors import meant

# Makes pyspark omit the traceback of its Python process, which ends with the error.
NO_TRACE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Make Spark show our errors by their message alone: place, problem and hint.

    Decorates functions that Spark calls in a Python process of its own.
    """
    try:
        yield
    except HeadraceError:
        os.environ[NO_TRACE] = "1"
        raise


def check_options(source: str, options: Mapping[str, str], known: Sequence[str]) -> None:
    """Raise for options that *source* does not have: users would expect an effect.

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
    """Raise if a frame has *missing* columns, or would replace existing data.

    Raises:
        ConfigError: with *mode*, the call that is right, or with the *columns* that are needed.

    """
    if overwrite:
        raise bad_option("mode", "a sink cannot be overwritten", mode)
    if missing:
        raise bad_option("schema", f"columns {', '.join(sorted(missing))} are missing", columns)
