"""Options that are ignored: the test that shows an option's effect must fail then.

With `HEADRACE_IGNORED=module:Class.field` each read of that option returns its default, or another
value than the given one, if it has no default.
"""

import dataclasses
import importlib
import os
import signal
import tempfile
import time
import typing
from collections.abc import Mapping
from typing import Any, Final

import pytest

from headrace.plugins import declared_options
from helpers.recordings.corpora import recordings_folder
from helpers.settings.native_modules import ROOT

VARIABLE: Final = "HEADRACE_IGNORED"
SECONDS_MAX: Final = 120
# No program reads their values: their effect is that they are accepted, up to a bound.
ACCEPTED: Final = frozenset({"tasks_max"})
_POLL_SECONDS: Final = 0.01


def obey_ignored() -> None:
    """Ignore the option that the environment names, if it names one."""
    if named := os.environ.get(VARIABLE):
        module, _, place = named.partition(":")
        class_name, _, field_name = place.partition(".")
        ignore_option(getattr(importlib.import_module(module), class_name), field_name)


def ignore_option(config_class: type, field_name: str) -> None:
    """Ignore the field *field_name* of *config_class*, and of those derived from it.

    Safe to call twice.
    """
    if field_name in ACCEPTED:
        for each in (config_class, *config_class.__subclasses__()):
            vars(each)["__dataclass_fields__"].pop(field_name, None)
        # A process that was forked knows the options of its parent's classes.
        typing.cast("Any", declared_options).cache_clear()
        return
    (field,) = (f for f in dataclasses.fields(config_class) if f.name == field_name)
    value = _instead(config_class, field)

    def ignore(_: object, __: object) -> None:
        """Keep no value."""

    setattr(config_class, field_name, property(lambda _: value, ignore))


def run_ignored(place: str, test: str) -> tuple[int, str]:
    """Run *test* while the option at *place* is ignored; return pytest's exit status and output.

    The process is forked from this one, which has imported what tests need: that is most of the
    time. It unpacks recordings into the folder of this process, which uses and removes it.
    """
    recordings_folder()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if not child:
            os.chdir(folder)  # Files whose path is the ignored option are made there.
            _run_in_child(place, str(ROOT / test), output.fileno())
        status = _awaited(child)
        output.seek(0)
        return status, output.read()


def _run_in_child(place: str, test: str, output: int) -> typing.NoReturn:
    status = -1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ[VARIABLE] = place  # Also for processes that the test starts.
        obey_ignored()
        # What a failed test leaves open does not matter.
        quiet = [f"-pno:{name}" for name in ("cacheprovider", "unraisableexception")]
        status = pytest.main(["-qx", "--tb=short", "-pno:threadexception", *quiet, test])
    finally:
        os._exit(status)


def _awaited(child: int) -> int:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_SECONDS)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"it runs longer than {SECONDS_MAX} s")


def _instead(config_class: type, field: "dataclasses.Field[Any]") -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    hint = typing.get_type_hints(config_class)[field.name]
    hint = typing.get_origin(hint) or hint
    return {str: "ignored", tuple: (), Mapping: {}, dict: {}}.get(hint)
