"""What is installed is what is in the four folders, under one name."""

from importlib.util import find_spec

import pytest

from hot import NATIVE, hot_modules, is_compiled


def test_native_is_required() -> None:
    """HEADRACE_NATIVE=require is never satisfied by an interpreted module."""
    interpreted = [name for name in hot_modules() if not is_compiled(name)]

    assert NATIVE != "require" or not interpreted


@pytest.mark.parametrize("folder", ["connector", "plugins", "sinks", "sources"])
def test_one_copy(folder: str) -> None:
    """The folders are not importable by their bare names, which would double every class."""
    assert find_spec(folder) is None
    assert find_spec(f"headrace.{folder}") is not None
