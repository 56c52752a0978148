"""What a message says of a change, whichever schema, envelope and origin it has."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connector.replay.comparing.messages import ChangeRow, MessageReader
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, Encoding, Stored
from headrace.plugins.testing.doubles import context
from headrace.sinks.null import NullConfig, NullSink
from headrace.sources.cassandra.encode.origin import ORIGIN, TABLE_NODE
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.node_logs import everything, forged_nodes

ENVELOPES = ("cep44", "flat", "debezium")


class Written(NullSink):
    """A sink that asks for an envelope."""

    def __init__(self, envelope: str) -> None:
        """Ask for *envelope* in Avro."""
        super().__init__(NullConfig(), context())
        self._wanted = Encoding(codec="avro", envelope=envelope)

    def encoding(self) -> Encoding:
        """Return what was asked for."""
        return self._wanted


def read(
    batches: list[Batch], envelope: str, headers: tuple[tuple[str, bytes], ...] = ()
) -> tuple[MessageReader, list[tuple[ChangeRow, Mapping[str, object], Stored, int]]]:
    """Encode changes and read them; return what was read, and sums."""
    sink = Written(envelope)
    encoder, reader = Encoder(sink.encoding(), ORIGIN), MessageReader(sink, ORIGIN, Path())
    found = []
    for batch in batches:
        reader.learn(encoder.schema(schema) for schema in batch.schemas())
        made = encoder.encode(batch, token=0)
        for place, value in enumerate(made.values):
            stored = Stored(place, made.keys[place], value, made.headers[place] + headers)
            document = reader.document(stored)
            assert document is not None
            row = reader.row(document, stored)
            found.append((row, document, stored, reader.sum_of(row, document, stored)))
    return reader, found


def rows_of(folder: Path, *nodes: str, schema: str = SCHEMA) -> list[Batch]:
    """Return one change that each of *nodes* has logged, as one log has it."""
    logs = {node: [insert(b"k", b"v")] for node in nodes}
    return list(everything(forged_nodes(folder, logs, schema) | {"consistency": "ONE"}))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_where_a_change_was_read_does_not_count(tmp_path: Path, envelope: str) -> None:
    """The same change from the log of another node has the same content and the same sum."""
    (here, there) = (read(rows_of(tmp_path / node, node), envelope)[1][0] for node in ("n1", "n2"))

    assert here[2].value != there[2].value
    assert here[3] == there[3]
    contents = {
        reader.content(found[0][1], found[0][0], found[0][2].headers)
        for reader, found in (read(rows_of(tmp_path / n, n), envelope) for n in ("m1", "m2"))
    }
    assert 1 == len(contents)


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_column_that_was_added_does_not_count(tmp_path: Path, envelope: str) -> None:
    """A change has the same content with an older and a newer schema of its table."""
    newer = SCHEMA.replace("v blob", "v blob, w text")
    assert newer != SCHEMA
    contents = []
    for name, schema in (("a", SCHEMA), ("b", newer)):
        reader, found = read(rows_of(tmp_path / name, "n1", schema=schema), envelope)
        row, document, stored, _ = found[0]
        contents.append(reader.content(document, row, stored.headers))

    assert contents[0] == contents[1]


@pytest.mark.parametrize("envelope", ENVELOPES[:2])
def test_values_that_were_asked_for_are_known_by_name(tmp_path: Path, envelope: str) -> None:
    """A change whose lists were read is compared by its name: another reading finds others."""
    reader, found = read(rows_of(tmp_path, "n1"), envelope, ((ORIGIN.of_now, b"read"),))
    row, document, stored, summed = found[0]

    assert row.name == reader.content({**document, "w": 1}, row, stored.headers)
    assert summed != reader.sum_of(row, document, stored._replace(headers=stored.headers[:1]))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_rows_of_a_table_are_recognized(tmp_path: Path, envelope: str) -> None:
    """A row that was read from a table is distinguished from a change of a log."""
    reader, found = read(rows_of(tmp_path, "n1"), envelope)
    row, document, _, _ = found[0]
    of_table: dict[str, object] = {**document}
    if envelope == "debezium":
        of_table["source"] = {**document["source"], "snapshot": "true"}  # type: ignore[dict-item]
        table_row = row
    else:
        fields = tuple(ORIGIN.fields)
        own = [
            TABLE_NODE if name == "node" else each
            for name, each in zip(fields, row.origin, strict=True)
        ]
        table_row = row._replace(origin=tuple(own))

    assert (False, True) == (
        reader.is_of_table(document, row),
        reader.is_of_table(of_table, table_row),
    )


def test_names_of_columns_that_the_envelope_has(tmp_path: Path) -> None:
    """In `flat` a column may have the name of a field; the field has a longer one then."""
    schema = SCHEMA.replace("v blob", 'v blob, "__op" text, "__timestamp" text')
    _, found = read(rows_of(tmp_path, "n1", schema=schema), "flat")
    row = found[0][0]

    assert ("INSERT", int) == (row.operation, type(row.time_us))


def test_the_key_counts(tmp_path: Path) -> None:
    """The same value with another key is another message."""
    reader, found = read(rows_of(tmp_path, "n1"), "cep44")
    row, document, stored, summed = found[0]
    other = row._replace(key=b"other")

    assert summed != reader.sum_of(other, document, stored)
    assert reader.content(document, row, ()) != reader.content(document, other, ())
