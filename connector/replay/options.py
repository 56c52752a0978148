"""What is wrong with options before anything is looked at: empty ones, and ones that contradict.

An option that is not given is None or False, so one that is empty was meant to say something, as
by a variable of a shell that is not set. Pure.
"""

import argparse
from typing import Final

from headrace.connector.replay.errors import bad_option

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
        ConfigError: it asks for none, or for fewer.

    """
    shards: int | None = given.shards
    if shards is not None and shards < 1:
        hint = "leave it out for as many as the size asks for"
        raise bad_option("--shards", f"expected 1 or more, found {shards}", hint)
    return shards or 0


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
