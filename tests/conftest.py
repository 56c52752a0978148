"""Settings for every test."""

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from deaf import obey_deaf
from hot import hot_modules, is_compiled, is_stale, obey_native
from scratch import prefer_memory

prefer_memory()
obey_native()
obey_deaf()

# A shared machine is slow at random; a property that is slow is found by timing, not here.
settings.register_profile("gate", deadline=None, derandomize=True, database=None)
# `make fuzz` gives a seed; without one, every run has the same examples.
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None)
settings.load_profile("fuzz" if "HEADRACE_FUZZ_SEED" in os.environ else "gate")


def pytest_report_header() -> list[str]:
    """Say whether machine code or the interpreter is tested, and whether it is an old one."""
    compiled = [is_compiled(name) for name in hot_modules()]
    lines = [f"hot modules: {compiled.count(True)} compiled, {compiled.count(False)} interpreted"]
    stale = [name for name in hot_modules() if is_stale(name)]
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
