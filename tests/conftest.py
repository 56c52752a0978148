"""Settings for every test."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from hypothesis import settings

from helpers.settings.ignored_options import obey_ignored
from helpers.settings.native_modules import (
    bindings,
    hot_modules,
    is_compiled,
    is_stale,
    obey_native,
)
from helpers.settings.scratch import prefer_memory

GARBAGE_OBJECTS: Final = 100_000  # Instead of 700: tests that forge and judge logs make many.

GATE_EXAMPLES: Final = 50  # Of a property that names no number itself.

prefer_memory()
obey_native()
obey_ignored()

# A shared machine is slow at random; a property that is slow is found by timing, not here.
# `make fuzz`, which `.ci/run` calls, has twice the examples, and other ones.
settings.register_profile(
    "gate", deadline=None, derandomize=True, database=None, max_examples=GATE_EXAMPLES
)
# `make fuzz` gives a seed; without one, every run has the same examples.
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None)
settings.load_profile("fuzz" if "HEADRACE_FUZZ_SEED" in os.environ else "gate")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is collected, which stays to the end, out of each pass of the garbage collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_OBJECTS)
        gc.enable()


def pytest_report_header() -> list[str]:
    """Say whether machine code or the interpreter is tested, and whether it is an old one."""
    compiled = [is_compiled(name) for name in hot_modules()]
    lines = [f"hot modules: {compiled.count(True)} compiled, {compiled.count(False)} interpreted"]
    stale = [name for name in (*hot_modules(), *bindings()) if is_stale(name)]
    return lines + [f"older than its source, make renews it: {name}" for name in stale]


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """Let no test log into what another test captured: a command that it called configures."""
    handlers, level = logging.root.handlers[:], logging.root.level
    driver = logging.getLogger("cassandra")  # Which the shell silences.
    driver_level = driver.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    driver.setLevel(driver_level)


@pytest.fixture(autouse=True)
def _folder_restored() -> Iterator[None]:
    """Let no test begin in the folder of another's job, which is removed: commands change to it."""
    before = Path.cwd()
    yield
    os.chdir(before)
