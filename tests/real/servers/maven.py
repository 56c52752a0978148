"""Java programs from Maven repositories: their jars, fetched once into a cache."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_PLUGIN: Final = f"{_DEPENDENCIES}:copy-dependencies"
_COPY: Final = f"{_DEPENDENCIES}:copy"
_FETCH_SECONDS_MAX: Final = 300
_DONE: Final = ".complete"

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
    </dependency>"""


class ServerError(Exception):
    """A real server cannot be had: a failure of the test that wants it, never a reason to skip."""


def program(name: str) -> str:
    """Return the path of an installed program. Raises ServerError with what to install."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise ServerError(
            f"{name} is not on the PATH\nhint: `make test-real` needs Java 17, Maven and Node, as "
            "in `apt-get install openjdk-17-jdk-headless maven nodejs npm`"
        )
    return found


def jars(name: str, *coordinates: str) -> str:
    """Return a class path of *coordinates* (`group:artifact:version`) and all they need."""
    cache = CACHE / name
    with alone():
        if not (cache / _DONE).exists():
            with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
                _fetch(Path(folder), coordinates)
                shutil.rmtree(cache, ignore_errors=True)
                (Path(folder) / "lib").rename(cache)
    return f"{cache}/*"


def artefact(coordinates: str) -> Path:
    """Return the one file that *coordinates* (`group:artifact:version:type:classifier`) name."""
    _, name, version, kind, classifier = coordinates.split(":")
    found = CACHE / name / f"{name}-{version}-{classifier}.{kind}"
    with alone():
        if not found.exists():
            found.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=found.parent) as folder:
                copy = _COPY, f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"
                _maven(Path(folder), *copy, wanted=coordinates)
                (Path(folder) / found.name).rename(found)
    return found


@contextmanager
def alone(lock: str = "lock") -> Iterator[None]:
    """Let one process at a time fill the cache: Maven's own folder does not bear two."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, coordinates: tuple[str, ...]) -> None:
    dependencies = "\n".join(_DEPENDENCY.format(*c.split(":")) for c in coordinates)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
    copy = _PLUGIN, f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"
    _maven(folder, *copy, wanted=", ".join(coordinates))
    (folder / "lib" / _DONE).touch()


def _maven(folder: Path, *arguments: str, wanted: str) -> None:
    done = subprocess.run(  # noqa: S603 (Maven, on a file of ours)
        [program("mvn"), "--quiet", "--batch-mode", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_FETCH_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"Maven cannot fetch {wanted}:\n{done.stdout[-2000:]}")
