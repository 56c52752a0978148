"""Records: what is kept of one that cannot continue."""

import json

from headrace.plugins import Operation, Record, RecordSchema
from headrace.plugins.records.record import readable

FIELDS: list[dict[str, object]] = [{"name": "v", "type": "bytes"}]
SCHEMA = RecordSchema.of(
    "t",
    "a table",
    key={"type": "record", "name": "k", "fields": FIELDS},
    value={"type": "record", "name": "v", "fields": FIELDS},
)


def test_what_is_kept_has_no_form_of_python() -> None:
    """Bytes are text, or hex digits where they are none."""
    record = Record(
        key={"v": b"caf\xc3\xa9\n"},
        value={"v": b"\xff\x00", "n": None, "b": True},
        operation=Operation.INSERT,
        timestamp_us=0,
        schema=SCHEMA,
    )

    content, _ = record.kept()

    expected = {"key": {"v": "café\n"}, "value": {"v": "0xff00", "n": None, "b": True}}
    assert expected == json.loads(content)
    assert "0xff" == readable(bytearray(b"\xff"))
