"""The options of a config class, as arguments of a command."""

import argparse
import typing
from collections.abc import Mapping
from dataclasses import Field
from typing import Any, Final, TypeVar

from headrace.plugins.config.forms import default_of, is_required, plain_type
from headrace.plugins.config.options import Option, declared_options, parse_config, unit_in
from headrace.plugins.config.references import resolve
from headrace.plugins.errors import ConfigError, Problem

C = TypeVar("C")

_FORMS: Final[Mapping[object, str]] = {int: "N", float: "N", tuple: "NAME,…"}
_UNIT_FORMS: Final = {"ms": "TIME", "seconds": "TIME", "bytes": "SIZE", "kbytes": "SIZE"}
_EMPTY_HINT: Final = "is a variable of the shell not set? Give a value, or leave the option out"


def add_options(
    parser: argparse._ActionsContainer,
    config_class: type,
    *,
    positional: Mapping[str, str] | None = None,
) -> None:
    """Add the options of *config_class*: `hold.min_free` as `--hold-min-free`.

    *positional* are the options, in this order, that are given without a flag, if the class has
    them, and the name of each in the help.
    """
    hints = typing.get_type_hints(config_class)
    options = declared_options(config_class)
    order = {key: shown for key, shown in (positional or {}).items() if key in options}
    for key in (*order, *(key for key in options if key not in order)):
        field, declared = options[key]
        kind, _ = plain_type(hints[field.name])
        how: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(field, declared)}
        if key in order:
            nargs = "+" if kind is tuple else None if is_required(field) else "?"
            parser.add_argument(key, metavar=order[key], nargs=nargs, **how)
        elif kind is bool:
            parser.add_argument(flag_of(key), dest=key, action="store_true", **how)
        else:
            how |= {"metavar": _form(key, kind, declared), "required": is_required(field)}
            parser.add_argument(flag_of(key), dest=key, **how)


def config_of(config_class: type[C], given: argparse.Namespace) -> C:
    """Return the config of the arguments in *given*; references to secrets are resolved.

    Raises:
        ConfigError: it lists every mistake, under its flag.
        SecretUnavailableError: a reference cannot be resolved.

    """
    options = declared_options(config_class)
    values = {key: text for key, text in vars(given).items() if key in options}
    problems = [
        Problem(flag_of(key), "expected a value, found nothing", _EMPTY_HINT)
        for key, text in values.items()
        if text == ""
    ]
    if problems:
        raise ConfigError(problems)
    for key, (_, declared) in options.items():
        if declared.secret and key in values:
            values[key] = resolve(values[key], place=flag_of(key))
    try:
        return parse_config(config_class, values)
    except ConfigError as error:
        found = ((flag_of(p.key) if p.key in options else p.key, p) for p in error.problems)
        raise ConfigError([Problem(key, p.message, p.hint) for key, p in found]) from error


def flag_of(key: str) -> str:
    """Return the flag of the option *key*."""
    return "--" + key.replace(".", "-").replace("_", "-")


def _form(key: str, kind: object, declared: Option) -> str | None:
    """Return the placeholder of a value in the help; None for the option's name."""
    if declared.choices:
        return f"{{{','.join(declared.choices)}}}"
    if declared.secret:
        return "REFERENCE"
    unit = declared.unit or (unit_in(key) if kind in (int, float) else "")
    return _UNIT_FORMS[unit] if unit else _FORMS.get(kind)


def _help(field: Field[Any], declared: Option) -> str:
    text = (declared.doc[0].lower() + declared.doc[1:]).removesuffix(".").replace("%", "%%")
    if declared.secret:
        text += ", as a reference: '${env:NAME}', '${file:PATH:KEY}'"
    default = default_of(field)
    is_reported = default in (None, "", "0", "0.0", "false") or "default:" in text
    return text if is_reported else f"{text} (default: {default})"
