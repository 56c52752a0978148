"""The origin of changes as a source reports it: its own fields of the envelope `cep44`.

A source declares an `Origin` as `Source.origin`; headers, envelopes and the columns of a replay
know its fields only from there.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

# The fields of a change that are common to all sources. The last five may be left out.
CHANGE_FIELDS: Final = (
    "timestampMicros",
    "operationType",
    "sourceKeyspace",
    "sourceTable",
    "truncatedFields",
    "isStatic",
    "ttl",
    "expires",
    "updateFields",
    "payload",
    "cells",
    "range",
    "mutation",
    "index",
    "of",
    "schemaUuid",
    "version",
    "isPartial",
    "pre",
    "post",
)


class SourceField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the struct `source` in the envelope `debezium`.

    It has the value of the change's field *of*, which is an `int`, a `long` or a `string`. With
    *as_text* a number becomes its digits. Without *of* it is an empty text.
    """

    name: str
    of: str = ""
    as_text: bool = False


class DebeziumSource(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the struct `source` in the envelope `debezium`, as its connector writes it.

    *connector* and *db* are strings. `name` is the change's field *name*, as a text. *fields*
    follow those that every connector of Debezium has. With *snapshot* all records were read from a
    table: their `op` is `r`, and `snapshot` is `true`.
    """

    connector: str = "headrace"
    db: str = ""
    name: str = ""
    snapshot: bool = False
    fields: tuple[SourceField, ...] = (
        SourceField(name="schema", of="sourceKeyspace"),
        SourceField(name="table", of="sourceTable"),
    )


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that the source adds to the envelope `cep44`, in the order of its schemas.

    *fields* has the type of each: `int`, `long` or `string`. Each can be requested as a header, and
    is a column in the output of a replay. `Record.origin` or `Record.value` has their values.
    *of_table* are the values of some of them in records that were read from a table, not a log.
    *of_now* is a header of records with values that were queried at reading: another reading of the
    source may find others.
    """

    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    debezium: DebeziumSource = DebeziumSource()
    of_table: Mapping[str, int | str] = msgspec.field(default_factory=dict)
    of_now: str = ""

    def is_of_table(self, value: Mapping[str, object]) -> bool:
        """Return whether a change with this *value* was read from a table."""
        constants = self.of_table.items()
        return bool(constants) and all(value.get(name) == each for name, each in constants)


NO_ORIGIN: Final = Origin()
