"""The two ways of running the hot modules: as machine code, or by the interpreter.

A compiled module lies beside its .py, and Python prefers it. With `HEADRACE_NATIVE=off` it is
skipped, so that one checkout can test both; `test_packaging.py` checks `HEADRACE_NATIVE=require`.
"""

import os
import sys
from collections.abc import Sequence
from configparser import ConfigParser
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

NATIVE = os.environ.get("HEADRACE_NATIVE", "auto")
ROOT = Path(__file__).parents[3]


class SourceOnly(MetaPathFinder):
    """Finds the .py of headrace's modules, and skips their compiled form."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module of headrace; leave others to the next finder."""
        if path is None or not fullname.startswith("headrace."):
            return None
        if fullname in bindings():
            raise ModuleNotFoundError(f"{fullname} is machine code", name=fullname)
        finders = (FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES)) for entry in path)
        return next((spec for f in finders if (spec := f.find_spec(fullname, target))), None)


def obey_native() -> None:
    """Make imports follow `HEADRACE_NATIVE`; call it before the first import of headrace."""
    if NATIVE == "off":
        sys.meta_path.insert(0, SourceOnly())


def hot_modules() -> list[str]:
    """Return the names of the modules that `setup.py` compiles."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings["headrace:native"]["modules"].split()


def bindings() -> list[str]:
    """Return the names of the modules that have no interpreted form."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings["headrace:native"]["bindings"].split()


def is_compiled(name: str) -> bool:
    """Return whether importing *name* loads machine code."""
    return _origin(name).endswith(tuple(EXTENSION_SUFFIXES))


def is_stale(name: str) -> bool:
    """Return whether the machine code of *name* is older than its .py or .pxd."""
    if not is_compiled(name):
        return False
    source = ROOT.joinpath(*name.split(".")[1:])
    compiled = Path(_origin(name))
    kinds = (".pyx",) if name in bindings() else (".py", ".pxd")
    written = [source.with_suffix(kind).stat().st_mtime for kind in kinds]
    return compiled.stat().st_mtime < max(written)


def _origin(name: str) -> str:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # A binding, where machine code is skipped.
        return ""
    return str(spec.origin) if spec else ""


def long(*values: object) -> pytest.ParameterSet:
    """Return parameters that `make test` runs with machine code only.

    The interpreter runs the rest of the parameters, which show the same of both.
    """
    return pytest.param(*values, marks=pytest.mark.long)
