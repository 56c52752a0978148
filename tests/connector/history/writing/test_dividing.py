"""Records are divided by the files of a history, and are the same when they are read back."""

from pathlib import Path
from zlib import crc32

import msgspec

from headrace.connector.history.writing.dividing import content_of, divided, records_of
from headrace.plugins import Operation
from headrace.plugins.records.encoded import FactColumns
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import Kept, beside, of_table
from helpers.histories.rows import TABLE, change, delivery
from helpers.recordings.batches import recorded_batches

TABLE_OF_MANY_SCHEMAS = "4.1-schema"


def test_facts_are_divided_with_them(tmp_path: Path) -> None:
    """Write times and operations, of which a history has columns."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, files="3"))
    file = kept.history().file
    given = delivery(*(change(written_us=n, of=(n, 1)) for n in range(20))).encoded
    facts = FactColumns()
    for n in range(20):
        facts.add(n, Operation.UPDATE if n % 3 else Operation.INSERT, origin={})
    whole = facts.facts()
    times: list[int] = []
    for part in divided(msgspec.structs.replace(given, facts=whole), file):
        assert part.facts is not None
        mine = list(part.facts.timestamps_us)
        assert mine == [n for n, value in enumerate(given.values) if value in part.values]
        assert [whole.operations[n] for n in mine] == list(part.facts.operations)
        times += mine
    file.close()
    assert [*range(20)] == sorted(times)


def test_records_are_divided_and_read_back(tmp_path: Path) -> None:
    """Each is in the part of its bucket, in order, also where schemas change within a batch."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, buckets="5", files="3"))
    file = kept.history().file
    schemas = 0
    for batch in recorded_batches(TABLE_OF_MANY_SCHEMAS):
        for table in {record.schema.table for record in batch.records()}:
            encoded = of_table(batch, table).encoded
            parts = divided(encoded, file)
            assert 3 == len(parts)
            rows = list(zip(encoded.keys, encoded.values, map(dict, encoded.headers), strict=True))
            for number, part in enumerate(parts):
                expected = [row for row in rows if crc32(row[0] or b"") % 5 % 3 == number]
                read = list(records_of(content_of([part]), table)) if len(part) else []
                found = [
                    row
                    for each in read
                    for row in zip(each.keys, each.values, map(dict, each.headers), strict=True)
                ]
                assert expected == found
                schemas = max(schemas, len(read))
    file.close()
    assert schemas > 1
