"""What is wrong with options before anything is looked at: empty, contradicting, out of bounds.

An option that is not given is None or False, so one that is empty was meant to say something, as
by a variable of a shell that is not set. Pure.
"""

import argparse
from typing import Final

from headrace.connector.replay.errors import bad_option

CHUNK_BYTES: Final = 128 * 1024 * 1024  # Of all logs together: what a killed driver repeats.
LAG_BYTES: Final = 1024 * 1024 * 1024
DELTA, ICEBERG = "delta", "iceberg"
LAKE_KINDS: Final = (DELTA, ICEBERG)
SHARDS_BOUND: Final = 100_000  # Each is a row of the state file, and a task.
_INT64_MAX: Final = (1 << 63) - 1
_FLAGS: Final = {"since": "--from", "before": "--to"}  # Of names that Python has taken.
# Records go to topics of their own, to the live ones, or to files.
_APART: Final = (("suffix", "into_live"), ("to_folder", "into_live"), ("to_folder", "suffix"))


def refuse_empty(given: argparse.Namespace) -> None:
    """Refuse options that are there and say nothing. Raises ConfigError."""
    for name, value in vars(given).items():
        if value == "":
            hint = "is a variable of the shell not set? Give a value, or leave the option out"
            raise bad_option(_flag(name), "expected a value, found nothing", hint)


def refuse_contradictions(given: argparse.Namespace) -> None:
    """Refuse options that say where a plan goes and cannot all be meant. Raises ConfigError."""
    options = vars(given)
    for one, other in _APART:
        if options[one] and options[other]:
            raise bad_option(_flag(one), f"contradicts {_flag(other)}", "give one of them")
    if given.format and not given.to_folder:
        raise bad_option("--format", "is of files in a folder", "give --to-folder")


def shards_of(given: argparse.Namespace) -> int:
    """Return how many shards `--shards` asks for; 0, where it is left out, is as many as it takes.

    Raises:
        ConfigError: it asks for none, or for more than can be kept.

    """
    if given.shards is None:
        return 0
    hint = "leave it out for as many as the size asks for"
    return number_of(given, "shards", least=1, most=SHARDS_BOUND, hint=hint)


def number_of(
    given: argparse.Namespace, name: str, *, least: int, most: int = _INT64_MAX, hint: str = ""
) -> int:
    """Return the option *name*, a whole number from *least* to *most*. Raises ConfigError."""
    number: int = getattr(given, name)
    if number < least:
        raise bad_option(_flag(name), f"expected {least} or more, found {number}", hint)
    if number > most:
        raise bad_option(_flag(name), f"expected at most {most}, found {number}", hint)
    return number


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
