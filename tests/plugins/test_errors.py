"""Every named error has a code of its own and a documented exit status."""

import pkgutil
from collections import Counter
from collections.abc import Iterator
from importlib import import_module

import pytest

import headrace
from headrace.plugins import ConfigError, FatalError, HeadraceError, Problem, RetriableError

# Rooms whose packages are extras, and modules that run when they are imported.
LEFT_OUT = ("headrace.connector.replay", "headrace.connector.streams")


def error_classes(base: type[HeadraceError] = HeadraceError) -> Iterator[type[HeadraceError]]:
    """Return *base* and all its subclasses."""
    yield base
    for child in base.__subclasses__():
        yield from error_classes(child)


@pytest.fixture(scope="module")
def ours() -> list[type[HeadraceError]]:
    """Import every module, so that every class exists, and return the errors among them."""
    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if not module.name.startswith(LEFT_OUT) and not module.name.endswith("__main__"):
            import_module(module.name)
    return [kind for kind in error_classes() if kind.__module__.startswith("headrace.")]


def test_codes_are_unique(ours: list[type[HeadraceError]]) -> None:
    """No two classes share a code, and none merely inherits one."""
    inherited = [kind.__name__ for kind in ours if "code" not in vars(kind)]
    shared = [code for code, count in Counter(kind.code for kind in ours).items() if count > 1]

    assert [] == inherited
    assert [] == shared


def test_exit_statuses(ours: list[type[HeadraceError]]) -> None:
    """A process that ends in an error exits with 1, 2, 3 or, where data is lost, 4."""
    assert {1, 2, 3, 4} >= {kind.exit_status for kind in ours}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FatalError("torn"), "torn"),
        (FatalError("torn", place="a.log, byte 7"), "a.log, byte 7: torn"),
        (RetriableError("busy", hint="wait"), "busy\nhint: wait"),
        (
            ConfigError([Problem("a", "is odd", "make it even"), Problem("", "is empty")]),
            "a: is odd; is empty\nhint: make it even",
        ),
    ],
)
def test_text(error: HeadraceError, expected: str) -> None:
    """An error reads as place, message, and the hint on its own line."""
    assert expected == str(error)
