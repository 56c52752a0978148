"""The requirements of transforms and codecs. Version 1; a later version only adds tests."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from headrace.plugins.config.options import declared_options
from headrace.plugins.errors import BadRecordError
from headrace.plugins.positions import NumberPosition
from headrace.plugins.records.batches import RecordBatch
from headrace.plugins.records.codecs import Codec
from headrace.plugins.records.record import Record
from headrace.plugins.records.transforms import Transform
from headrace.plugins.testing.doubles import sample_records


class RecordSuite:
    """Tests with records; a subclass may provide others."""

    version: ClassVar[int] = 1

    @pytest.fixture
    def records(self) -> Sequence[Record]:
        """Return at least two different records, such as users have."""
        return sample_records(20)


class TransformSuite(RecordSuite):
    """Subclass it, and give it a fixture `transform` that returns a `Transform`."""

    @pytest.fixture
    def transform(self) -> Transform:
        """Return the transform to test."""
        raise NotImplementedError("a subclass of TransformSuite has a fixture named transform")

    def test_leaves_records_alone(self, transform: Transform, records: Sequence[Record]) -> None:
        """A record is not changed in place: the framework may still need it as it was."""
        before = [_parts(record) for record in records]
        made = [transform.one(record) for record in records]

        assert len(made) == len(records)
        assert before == [_parts(record) for record in records]

    def test_does_the_same_again(self, transform: Transform, records: Sequence[Record]) -> None:
        """A record that is delivered again after a crash has the same result."""
        first, again = ([_made(transform, record) for record in records] for _ in range(2))

        assert first == again

    def test_records_fit_their_schema(
        self, transform: Transform, records: Sequence[Record]
    ) -> None:
        """The fields of a record are those of the schema that the transform announces."""
        for record in records:
            made, schema = transform.one(record), transform.schema(record.schema)
            if made is not None:
                assert made.value.keys() == {f["name"] for f in schema.value["fields"]}
                assert (made.key or {}).keys() <= {f["name"] for f in schema.key["fields"]}

    def test_topics_are_texts(self, transform: Transform) -> None:
        """A topic becomes a topic."""
        assert isinstance(transform.topic("shop.orders"), str)

    def test_declares_itself(self, transform: Transform) -> None:
        """Every option has a documentation text."""
        declared = declared_options(transform.config_class)

        assert all(each.doc for _, each in declared.values())


class CodecSuite(RecordSuite):
    """Subclass it, and give it a fixture `codec` that returns a `Codec`."""

    @pytest.fixture
    def codec(self) -> Codec:
        """Return the codec to test."""
        raise NotImplementedError("a subclass of CodecSuite has a fixture named codec")

    @pytest.fixture
    def bad(self) -> Record | None:
        """Return a record that the codec cannot write; None if there is none."""
        return None

    def test_writes_bytes(self, codec: Codec, records: Sequence[Record]) -> None:
        """Keys and values are bytes, the same each time, also from another object."""
        first = [(codec.key(record), codec.value(record)) for record in records]
        other = type(codec)()

        assert all(isinstance(part, bytes) for pair in first for part in pair)
        assert first == [(other.key(record), other.value(record)) for record in records]

    def test_tells_values_apart(self, codec: Codec, records: Sequence[Record]) -> None:
        """Records with different values have different bytes."""
        different = {repr(record.value) for record in records}

        assert len(different) == len({codec.value(record) for record in records})

    def test_without_a_key(self, codec: Codec, records: Sequence[Record]) -> None:
        """A record without a key has no key bytes."""
        assert codec.key(records[0].changed(key=None)) is None

    def test_a_bad_record_is_alone(
        self, codec: Codec, records: Sequence[Record], bad: Record | None
    ) -> None:
        """An unwritable record raises BadRecordError; the others are written (I8)."""
        if bad is None:
            return
        with pytest.raises(BadRecordError):
            codec.value(bad)
        batch = RecordBatch("split", NumberPosition(1), 1, [*records, bad])

        assert (len(records), 1) == (len(done := codec.encode(batch)), len(done.quarantined))


def _parts(record: Record) -> str:
    return repr((record.key, record.value, record.headers, record.origin, record.topic))


def _made(transform: Transform, record: Record) -> str | None:
    made = transform.one(record)
    return None if made is None else _parts(made)
