"""Every option of a configuration has a test that shows its effect.

The table says which. With `HEADRACE_EFFECTS=1` each of these tests is run while its option has no
effect (`tests/helpers/settings/ignored_options.py`), and must fail: that takes a few minutes.
"""

import ast
import dataclasses
import importlib
import inspect
import os
from collections.abc import Iterator

import pytest

from helpers.settings.effects_table import EFFECTS
from helpers.settings.ignored_options import run_ignored
from helpers.settings.native_modules import ROOT

ROOMS = ("connector", "plugins", "sinks", "sources")
SKIPPED = ("testing", "demo", "replay")  # What is not configured by users, or needs more packages.


def declared() -> Iterator[str]:
    """Yield `module:Class.field` of each option, where it is declared."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            place = path.relative_to(ROOT).with_suffix("").parts
            if set(SKIPPED) & set(place) or "option(" not in path.read_text():
                continue
            module = importlib.import_module(
                ".".join(("headrace", *place)).removesuffix(".__init__")
            )
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == module.__name__:
                    yield from (f"{module.__name__}:{kind.__name__}.{n}" for n in options_of(kind))


def options_of(kind: type) -> list[str]:
    """Return the fields with options that *kind* itself declares."""
    if not dataclasses.is_dataclass(kind):
        return []
    fields = dataclasses.fields(kind)
    own = inspect.get_annotations(kind)
    return [f.name for f in fields if "option" in f.metadata and f.name in own]


def test_every_option_is_in_the_table() -> None:
    """A new option has a test that shows its effect, and the table says which."""
    known = {place.removeprefix("headrace.") for place in declared()}

    assert set() == known - set(EFFECTS), "add these to tests/helpers/settings/effects_table.py"
    assert set() == set(EFFECTS) - known, "take these out of it: they are no options"


def test_every_test_of_the_table_exists() -> None:
    """A test that the table names is there."""
    missing = []
    for test in set(EFFECTS.values()):
        path, *_, name = test.split("::")
        tree = ast.parse((ROOT / "tests" / path).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        missing += [] if name in names else [test]

    assert [] == missing


@pytest.mark.skipif("HEADRACE_EFFECTS" not in os.environ, reason="set HEADRACE_EFFECTS to run it")
@pytest.mark.parametrize("place", sorted(EFFECTS))
def test_effect(place: str) -> None:
    """The test fails when the option has none."""
    status, output = run_ignored(f"headrace.{place}", f"tests/{EFFECTS[place]}")

    assert pytest.ExitCode.TESTS_FAILED == status, output
