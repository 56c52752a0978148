"""Checks names of fields and headers: field names must be valid in Avro, and unique."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from headrace.connector.serde.avro_types import AVRO_NAME, definitions
from headrace.connector.serde.headers import LATE_HEADERS
from headrace.connector.serde.transforms.parts import TransformError
from headrace.plugins import ConfigError, Document, Problem
from headrace.plugins.records.codecs import CONSTANT_HEADERS

_HINT: Final = "Avro's names have letters, digits and _, and do not start with a digit"


def check_names(key: str, names: Iterable[str]) -> None:
    """Raise ConfigError if one of *names*, from the option *key*, is not a valid field name."""
    for name in names:
        if not AVRO_NAME.fullmatch(name):
            raise ConfigError([Problem(key, f"expected a field's name, found {name!r}", _HINT)])


def check_headers(key: str, names: Iterable[str]) -> None:
    """Raise ConfigError if one of *names*, from the option *key*, is set after all transforms."""
    for name in names:
        if name in LATE_HEADERS:
            message = f"messages get {name!r} after all transforms, so no record has it"
            constant = name in CONSTANT_HEADERS
            hint = "the sink's option headers says whether there is one" if constant else ""
            raise ConfigError([Problem(key, message, hint)])


def check_fields(schema: Document) -> None:
    """Raise TransformError if a record within *schema* has a duplicate or bad field name."""
    for record in definitions(schema).values():
        counts = Counter(field["name"] for field in record.get("fields", ()))
        for name, count in counts.items():
            if count > 1:
                raise TransformError(
                    f"{record['name']} would have {count} fields {name!r}, expected one",
                    hint="give the new field a name that no other field has",
                )
            if not AVRO_NAME.fullmatch(name):
                raise TransformError(f"{record['name']} would have a field {name!r}", hint=_HINT)
