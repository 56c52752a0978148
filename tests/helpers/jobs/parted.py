"""A sink of several parts, which processes of a test can open."""

import errno
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.connector.serde.change_names import ChangeNames
from headrace.connector.serde.decoding import Decoder
from headrace.connector.serde.encoder import Encoder
from headrace.plugins import Encoding, Sink, Stored
from headrace.plugins.testing.doubles import context
from headrace.sinks.files import FileSink, FileSinkConfig
from headrace.sinks.kafka.failures import BrokerUnreachableError

JSON = Encoding(codec="json")


def names() -> ChangeNames:
    """Return what reads the names of changes in JSON."""
    return ChangeNames(JSON, Encoder(JSON), (), Decoder({}, codec="json"))


def parted(folder: Path) -> tuple[Sink, ChangeNames]:
    """Return a sink whose parts are the files of a folder."""
    return Parted(FileSinkConfig(path=str(folder)), context()), names()


class Parted(FileSink):
    """A sink that wrote several files."""

    def parts(self, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
        """Return the files."""
        del tables, suffix
        return [str(path) for path in sorted(Path(self.config.path).iterdir())]

    def read_back(self, part: str) -> Iterator[Sequence[Stored]]:
        """Read a file, if its name does not say what happens instead."""
        if part.endswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if part.endswith("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if part.endswith("silent"):
            raise BrokerUnreachableError("the broker is silent", place=part, hint="wait")
        return super().read_back(part)
