"""Confluent's own deserialiser for Java, as a consumer of ours would use it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from real.servers.debezium import JAR
from real.servers.maven import ServerError, artefact, program

_PROGRAM: Final = Path(__file__).with_name("ReadMessages.java")
_SECONDS_MAX: Final = 600


def read_again(registry: str, topic: str, values: Sequence[bytes]) -> Sequence[bytes]:
    """Return what Java makes of framed *values* of *topic*: what it read, as Avro without frame."""
    done = subprocess.run(  # noqa: S603 (Java, on a program of ours)
        [program("java"), "-Xmx512M", "-cp", str(artefact(JAR)), str(_PROGRAM), registry],
        input="".join(f"{topic} {value.hex()}\n" for value in values),
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"Confluent's deserialiser failed:\n{done.stderr[-3000:]}")
    # Its libraries log to the same output.
    lines = [line.partition("read ") for line in done.stdout.splitlines()]
    return [bytes.fromhex(found) for before, mark, found in lines if mark and not before]
