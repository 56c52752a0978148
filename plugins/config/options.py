"""Options declared once, on a frozen dataclass; everything else is derived from the declaration.

A plugin author writes `path: str = option("Where to write.")` and gets conversion from strings,
bounds, choices, a report of all errors at once with suggestions, and the table for the
documentation.
"""

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from headrace.plugins.errors import ConfigError, Problem, meant

C = TypeVar("C")

_MISSING = dataclasses.MISSING
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_CLASSES_MAX: Final = 64  # Classes whose options and types are cached; a process has fewer.
_SHOWN_MAX: Final = 80  # Characters of a wrong value that an error repeats.
_LISTED_MAX: Final = 12  # Names of options that a hint lists.
NOT_AN_OPTION: Final = "is not an option"
_DURATIONS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# The size of each unit, in ms or bytes.
_UNITS: Final[Mapping[str, tuple[Mapping[str, int], int]]] = {
    "ms": (_DURATIONS, 1),
    "seconds": (_DURATIONS, 1_000),
    "bytes": (_SIZES, 1),
    "kbytes": (_SIZES, 1_024),
}
_QUANTITY: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})")
_IN_KEY: Final = re.compile(rf"(?:^|[._])({'|'.join(_UNITS)})(?:[._]|$)")


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one option; see `option` for the fields."""

    doc: str
    name: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    keys_allowed: str = ""
    keys_known: tuple[str, ...] = ()
    unit: str = ""
    writes: bool = False
    reads: bool = False


def option(  # noqa: PLR0913 (each argument is one property of an option)
    doc: str,
    *,
    default: Any = _MISSING,  # noqa: ANN401 (of the field's own type)
    name: str = "",
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
    keys_allowed: str = "",
    keys_known: tuple[str, ...] = (),
    unit: str = "",
    writes: bool = False,
    reads: bool = False,
) -> Any:  # noqa: ANN401 (a dataclass field, to a type checker)
    """Declare the option of a dataclass field; without *default* it must be given.

    *name* is the key if it cannot be the field's name (`bootstrap.servers`). *minimum* and
    *maximum* are inclusive. *keys_allowed* is a regular expression: the field, a mapping of
    strings, then takes every key that matches it and belongs to no other field; *keys_known* are
    those that a hint may suggest. The value of a *secret* option is in no message and no `repr`. An
    option that *writes* or *reads* is the path of a file or a folder that is written or read: in
    statements and requests it must be below the folders that the worker's file allows.

    A number whose key names its unit (`linger.ms`, `size_bytes`, `wait_seconds`) may be written
    with a unit: `500ms`, `2h`, `16MiB`. Another number may have a *unit* (`ms`, `seconds`, `bytes`,
    `kbytes`), which is that of the field, and must then be written with a unit.

    A field is a `str`, `int`, `float`, `bool`, `tuple[str, ...]` (a list, or a text with commas), a
    mapping, or an `object`, which is not checked; with `| None`, an empty text or no value means
    None.
    """
    declared = Option(
        doc=doc,
        name=name,
        choices=choices,
        minimum=minimum,
        maximum=maximum,
        secret=secret,
        keys_allowed=keys_allowed,
        keys_known=keys_known,
        unit=unit,
        writes=writes,
        reads=reads,
    )
    metadata = {"option": declared}
    if keys_allowed:
        return dataclasses.field(default_factory=dict, metadata=metadata, repr=not secret)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata, repr=not secret)
    if default is _MISSING:
        return dataclasses.field(metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def parse_config(
    config_class: type[C], given: Mapping[str, Any], *, place: str = "", name: str = ""
) -> C:
    """Check and convert *given* to an instance of *config_class*.

    Values may be strings, as from Kafka Connect, or values from YAML and JSON. With *name*, hints
    say that `headrace options NAME` lists the options.

    Raises:
        ConfigError: it lists every mistake, under its key.

    """
    problems: list[Problem] = []
    values: dict[str, object] = {}
    fields = declared_options(config_class)
    hints = _hints_of(config_class)
    left = {str(key): raw for key, raw in given.items()}  # YAML has keys that are not strings.
    for key, (field, declared) in fields.items():
        if key in left and not declared.keys_allowed:
            values[field.name] = _convert(key, left.pop(key), hints[field.name], declared, problems)
        elif field.default is _MISSING and field.default_factory is _MISSING:
            problems.append(Problem(key, "is required", declared.doc))
    for field, declared in fields.values():
        if declared.keys_allowed:
            taken = [key for key in left if re.fullmatch(declared.keys_allowed, key)]
            values[field.name] = {
                key: _convert(key, left.pop(key), str, declared, problems) for key in taken
            }
    problems += [_unknown(key, fields, name) for key in left]
    if not problems:
        try:
            return config_class(**values)
        except ConfigError as error:  # A cross-field check in __post_init__.
            problems += error.problems
        except Exception as error:  # noqa: BLE001 (a check of a plugin)
            text = without_secrets(values, str(error), config_class)
            message = f"{config_class.__qualname__} raised {type(error).__name__}: {text}"
            problems.append(Problem("", message, "its checks should raise ConfigError"))
    raise ConfigError(problems, place=place)


def without_secrets(
    config: Any,  # noqa: ANN401 (an instance of any config class, or its values by name)
    text: str,
    config_class: type | None = None,
) -> str:
    """Return *text* with each secret of *config* in it replaced by stars."""
    values = config if isinstance(config, Mapping) else vars_of(config)
    for field, declared in declared_options(config_class or type(config)).values():
        value = values.get(field.name)
        if declared.secret and value:
            found = value.values() if isinstance(value, Mapping) else [value]
            for each in sorted(map(str, found), key=len, reverse=True):
                text = text.replace(each, "***") if each else text
    return text


def vars_of(config: Any) -> dict[str, Any]:  # noqa: ANN401 (an instance of any config class)
    """Return the fields of a config by name, whether it has slots or not."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _declared_options(config_class: type) -> Mapping[str, tuple[dataclasses.Field[Any], Option]]:
    """Return the options of *config_class* by key, in the order of declaration."""
    fields = dataclasses.fields(config_class)
    found = [(f, f.metadata["option"]) for f in fields if "option" in f.metadata]
    return {declared.name or f.name: (f, declared) for f, declared in found}


# Each field takes some microseconds. Typed: to mypy, a class whose instances have no hash has none
# either.
declared_options: Final[Callable[[type], Mapping[str, tuple[dataclasses.Field[Any], Option]]]] = (
    functools.lru_cache(maxsize=_CLASSES_MAX)(_declared_options)
)
_hints_of: Final[Callable[[type], Mapping[str, Any]]] = functools.lru_cache(maxsize=_CLASSES_MAX)(
    typing.get_type_hints
)


def _unknown(
    key: str, fields: Mapping[str, tuple[dataclasses.Field[Any], Option]], name: str
) -> Problem:
    """Return the problem of an unknown key: its hint suggests an option, or where to find all."""
    named = [key for key, (_, declared) in fields.items() if not declared.keys_allowed]
    by_pattern = [key for _, declared in fields.values() for key in declared.keys_known]
    near = meant(key, named + by_pattern)
    hints = [near] if near else []
    if name:
        listed = f"lists all {len(named)} options" if len(named) > 1 else "describes its option"
        hints.append(f"`headrace options {name}` {listed}")
    elif not near and len(named) <= _LISTED_MAX:
        hints.append(f"options: {', '.join(named)}")
    elif not near:
        hints.append("`headrace options` shows what has options")
    return Problem(key, NOT_AN_OPTION, " ".join(hints))


def _convert(
    key: str, raw: object, hint: object, declared: Option, problems: list[Problem]
) -> object:
    """Return *raw* as the annotated type *hint*, or add to *problems*."""
    if isinstance(hint, types.UnionType):
        if raw is None or raw == "":
            return None
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    try:
        if hint in (int, float):
            raw = _in_unit(key, raw, declared)
        return _CONVERTERS.get(typing.get_origin(hint) or hint, _mapping)(raw, declared)
    except _UnfitError as unfit:
        text = "a secret" if declared.secret else shown(raw)
        problems.append(Problem(key, f"{unfit.expected}, found {text}", unfit.hint))
        return None


def shown(raw: object) -> str:
    """Return a wrong value for a message, without the content of a mapping or a list.

    The content is not declared, so it may be a secret.
    """
    if isinstance(raw, Mapping):
        return "a mapping"
    return "a list" if isinstance(raw, list | tuple) else repr(raw)[:_SHOWN_MAX]


class _UnfitError(Exception):
    """A value does not fit; *expected* describes values that do."""

    def __init__(self, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


def _boolean(raw: object, _: Option) -> bool:
    found = _BOOLEANS.get(_text(raw).lower())
    if found is None:
        raise _UnfitError("expected true or false")
    return found


def _in_unit(key: str, raw: object, declared: Option) -> object:
    """Return a quantity as a number of the option's unit; other values unchanged."""
    unit = declared.unit or unit_in(key)
    found = quantity(str(raw), unit) if unit else None
    if found is not None:
        return int(found) if found == int(found) else found
    if declared.unit:
        raise _UnfitError("expected a number with its unit", f"as in {examples(unit)}")
    return raw


def _whole(raw: object, declared: Option) -> int:
    try:
        return _bounded(int(str(raw)), declared)
    except ValueError:
        raise _UnfitError("expected a whole number") from None


def _number(raw: object, declared: Option) -> float:
    try:
        number = float(str(raw))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _UnfitError("expected a number")
    return _bounded(number, declared)


N = TypeVar("N", int, float)


def _bounded(number: N, declared: Option) -> N:
    if declared.minimum is not None and number < declared.minimum:
        raise _UnfitError(f"must be at least {declared.minimum}")
    if declared.maximum is not None and number > declared.maximum:
        raise _UnfitError(f"must be at most {declared.maximum}")
    return number


def _string(raw: object, declared: Option) -> str:
    if raw is None or isinstance(raw, Mapping | list):
        raise _UnfitError("expected a text")
    text = _text(raw)
    if declared.choices and text not in declared.choices:
        choices = declared.choices
        raise _UnfitError(f"expected one of {', '.join(choices)}", meant(text, choices))
    return text


def _list(raw: object, _: Option) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    if not isinstance(raw, list | tuple):
        raise _UnfitError("expected a list")
    return tuple(_text(item) for item in raw)


def _mapping(raw: object, _: Option) -> dict[str, object]:
    if not isinstance(raw, Mapping):
        raise _UnfitError("expected a mapping")
    return {str(key): value for key, value in raw.items()}


def _text(raw: object) -> str:
    return str(raw).lower() if isinstance(raw, bool) else str(raw)


def _as_is(raw: object, _: Option) -> object:
    return raw


_CONVERTERS: Final[Mapping[object, Callable[[object, Option], object]]] = {
    bool: _boolean,
    float: _number,
    int: _whole,
    object: _as_is,
    str: _string,
    tuple: _list,
}


def unit_in(key: str) -> str:
    """Return the unit in the name of an option, such as `ms` in `linger.ms`; or nothing."""
    found = _IN_KEY.findall(key)
    return str(found[-1]) if found else ""


def quantity(text: str, unit: str) -> Decimal | None:
    """Return the number of *unit* in the text; None if it is not a quantity of this kind."""
    match = _QUANTITY.fullmatch(text.strip())
    scale, one = _UNITS[unit]
    if match is None or match[2] not in scale:
        return None
    return Decimal(match[1]) * scale[match[2]] / one


def examples(unit: str) -> str:
    """Return examples of quantities of *unit*."""
    return "500ms, 10s, 2h" if _UNITS[unit][0] is _DURATIONS else "64KiB, 16MiB, 4GiB"
