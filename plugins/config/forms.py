"""Forms, schemas and tables that are derived from a declaration of options. Pure."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.plugins.config.options import Option, declared_options, parse_config
from headrace.plugins.errors import ConfigError, Problem

# Kafka Connect's names of types; its clients know no others.
_CONNECT_TYPES: Final[Mapping[object, str]] = {
    bool: "BOOLEAN",
    int: "LONG",
    float: "DOUBLE",
    tuple: "LIST",
}
_HIDDEN: Final = "PASSWORD"  # Connect's type of an option whose value is hidden.
_JSON_TYPES: Final[Mapping[object, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    tuple: "array",
    str: "string",
}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """An option in forms and lists. `kind` is one of Kafka Connect's nine types."""

    key: str
    kind: str
    doc: str
    required: bool
    default: str | None
    choices: Sequence[str]
    importance: str
    group: str
    order: int


class CheckedOption(msgspec.Struct, frozen=True):
    """A key, its given value, and the errors in it.

    The value is None for a secret, and for a key that is not declared: it may hold a secret.
    """

    key: str
    value: str | None
    errors: Sequence[str]
    definition: Definition | None


def definitions(config_class: type, *, group: str = "") -> list[Definition]:
    """Return the options of *config_class*; those by pattern have no definition."""
    hints = typing.get_type_hints(config_class)
    found: list[Definition] = []
    for key, (field, declared) in declared_options(config_class).items():
        if declared.keys_allowed:
            continue
        required = is_required(field)
        default = None if required or declared.secret else default_of(field)
        found.append(
            Definition(
                key=key,
                kind=_connect_type(hints[field.name], declared),
                doc=declared.doc,
                required=required,
                default=default,
                choices=declared.choices,
                importance="HIGH" if required else "MEDIUM",
                group=group,
                order=len(found) + 1,
            )
        )
    return found


def check_options(
    config_class: type,
    given: Mapping[str, str],
    *,
    group: str = "",
    problems: Sequence[Problem] = (),
) -> list[CheckedOption]:
    """Return every option and every key of *given*, with its errors.

    *problems* are mistakes that were found elsewhere, shown with the others.
    """
    found = list(problems)
    try:
        parse_config(config_class, given)
    except ConfigError as error:
        found += error.problems
    known = {definition.key: definition for definition in definitions(config_class, group=group)}
    keys = [*known, *(key for key in given if key not in known)]
    keys += [p.key for p in found if p.key not in keys]
    open_keys = {key for key, definition in known.items() if definition.kind != _HIDDEN}
    given_openly = {key: value for key, value in given.items() if key in open_keys}
    return [
        CheckedOption(
            key,
            given_openly.get(key, known[key].default if key in known else None),
            list(dict.fromkeys(_reported(p, given_openly.get(key)) for p in found if p.key == key)),
            known.get(key),
        )
        for key in dict.fromkeys(keys)
    ]


def json_schema(config_class: type, *, title: str = "") -> dict[str, Any]:  # Any: JSON.
    """Return the JSON Schema of a configuration with typed values, as from YAML or JSON."""
    hints = typing.get_type_hints(config_class)
    properties: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    required = []
    for key, (field, declared) in declared_options(config_class).items():
        if declared.keys_allowed:
            patterns[f"^(?:{declared.keys_allowed})$"] = {
                "type": "string",
                "description": declared.doc,
            }
            continue
        properties[key] = _property(hints[field.name], field, declared)
        if is_required(field):
            required.append(key)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if patterns:
        schema["patternProperties"] = patterns
    return {"title": title, **schema} if title else schema


def options_table(config_class: type) -> str:
    """Return the options as a table in Markdown."""
    lines = ["| option | default | means |", "|---|---|---|"]
    for key, (field, declared) in declared_options(config_class).items():
        name = f"keys like `{declared.keys_allowed}`" if declared.keys_allowed else f"`{key}`"
        default = "required" if is_required(field) else f"`{default_of(field)}`"
        if declared.keys_allowed or (default in ("`None`", "``")):
            default = "none"
        choices = (
            f" One of {', '.join(f'`{c}`' for c in declared.choices)}." if declared.choices else ""
        )
        lines.append(f"| {name} | {default} | {declared.doc}{choices} |")
    return "\n".join(lines) + "\n"


def _property(
    hint: object, field: dataclasses.Field[Any], declared: Option
) -> dict[str, Any]:  # Any: a piece of JSON Schema.
    plain, optional = plain_type(hint)
    made: dict[str, Any] = {"description": declared.doc}
    kind = _JSON_TYPES.get(plain)
    if kind:
        made["type"] = [kind, "null"] if optional else kind
    elif plain is not object:
        made["type"] = "object"
    if plain is tuple:
        made["items"] = {"type": "string"}
    if declared.choices:
        made["enum"] = list(declared.choices)
    bounds = {"minimum": declared.minimum, "maximum": declared.maximum}
    made |= {name: bound for name, bound in bounds.items() if bound is not None}
    if declared.secret:
        made["writeOnly"] = True
    elif not is_required(field) and default_of(field) is not None:
        made["default"] = field.default if field.default is not dataclasses.MISSING else {}
    return made


def _reported(problem: Problem, value: str | None) -> str:
    """Return the problem in the words of Kafka Connect."""
    hint = f" ({problem.hint})" if problem.hint else ""
    if problem.message == "is required":
        return f'Missing required configuration "{problem.key}" which has no default value.'
    shown = problem.message[0].upper() + problem.message[1:]
    if value is None:
        return f"Invalid value for configuration {problem.key}: {shown}{hint}"
    return f"Invalid value {value[:200]} for configuration {problem.key}: {shown}{hint}"


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether an option must be given."""
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def default_of(field: dataclasses.Field[Any]) -> str | None:
    """Return the default of an option as text; None without a default."""
    if field.default is dataclasses.MISSING or field.default is None:
        return None
    if isinstance(field.default, tuple):
        return ",".join(field.default)
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _connect_type(hint: object, declared: Option) -> str:
    if declared.secret:
        return _HIDDEN
    return _CONNECT_TYPES.get(plain_type(hint)[0], "STRING")


def plain_type(hint: object) -> tuple[object, bool]:
    """Return the type without `| None`, and whether it had `| None`."""
    optional = isinstance(hint, types.UnionType)
    if isinstance(hint, types.UnionType):
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    return typing.get_origin(hint) or hint, optional
