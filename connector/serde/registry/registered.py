"""What is registered: a version of a subject, and what makes a schema the same as another. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """Another subject's schema that a schema uses by name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    guid: str
    text: str
    references: tuple[Reference, ...]

    def is_it(self, schema_id: int | None, version: int | None) -> bool:
        """Say whether it has this id and this number; None is any."""
        return schema_id in (None, self.schema_id) and version in (None, self.version)


def identity_of(text: str, references: Sequence[Reference]) -> str:
    """Return what is equal for equal schemas; the order of fields and symbols counts."""
    refs = [[r.name, r.subject, r.version] for r in references]
    return json.dumps([json.loads(text), refs], sort_keys=True, separators=(",", ":"))
