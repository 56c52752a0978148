"""A schema registry that others wrote: Apicurio's, with its memory for a store."""

import contextlib
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from helpers.servers.ports import HOST, free_ports
from real.servers.java import java
from real.servers.maven import CACHE, alone, artefact
from real.servers.process import ServerProcess

VERSION: Final = "3.3.3"
_ARCHIVE: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_JAVA: Final = 25
_API: Final = "/apis/ccompat/v7"  # Confluent's interface.


@contextlib.contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Run one in the new *folder*; give the address of its Confluent interface."""
    folder.mkdir(parents=True)
    port, management = free_ports(2)
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.management.enabled": "true",
        "quarkus.management.host": HOST,
        "quarkus.management.port": management,
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": "jdbc:h2:mem:registry",
    }
    command = [
        java(_JAVA),
        *("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-D{name}={value}" for name, value in settings.items()),
        *("-jar", str(_unpacked() / "quarkus-run.jar")),
    ]
    address = f"http://{HOST}:{port}{_API}"
    with ServerProcess(command, folder) as process:
        process.wait_until(lambda: _answers(f"{address}/subjects"))
        yield address


def _unpacked() -> Path:
    """Return the folder of its files, which are fetched and unpacked the first time."""
    folder = CACHE / f"apicurio-{VERSION}"
    if not folder.exists():
        packed = artefact(_ARCHIVE)
        half = folder.with_suffix(".half")
        with alone(), tarfile.open(packed) as archive:
            # Python 3.11.0 to 3.11.3 extract without a filter and know no other way.
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(half)  # noqa: S202 (a release of theirs)
            half.rename(folder)
    return folder


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 (a test's server)
            return bool(answer.status == 200)
    except OSError:
        return False
