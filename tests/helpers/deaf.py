"""Options that have no effect: what a test that shows an option's effect must not survive.

`HEADRACE_DEAF=module:Class.field` lets every reader of that option find its default; for one that
must be given, something else than what was given.
"""

import dataclasses
import importlib
import os
import typing
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "HEADRACE_DEAF"


def obey_deaf() -> None:
    """Take the effect from the option that the environment names, if it names one."""
    if named := os.environ.get(VARIABLE):
        module, _, place = named.partition(":")
        class_name, _, field_name = place.partition(".")
        deafen(getattr(importlib.import_module(module), class_name), field_name)


def deafen(config_class: type, field_name: str) -> None:
    """Let the field *field_name* of *config_class*, and of those derived from it, be deaf."""
    (field,) = (f for f in dataclasses.fields(config_class) if f.name == field_name)
    value = _instead(config_class, field)

    def ignore(_: object, __: object) -> None:
        """Keep nothing."""

    setattr(config_class, field_name, property(lambda _: value, ignore))


def _instead(config_class: type, field: "dataclasses.Field[Any]") -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    hint = typing.get_type_hints(config_class)[field.name]
    hint = typing.get_origin(hint) or hint
    return {str: "deaf", tuple: (), Mapping: {}, dict: {}}.get(hint)
