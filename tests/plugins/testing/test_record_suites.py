"""The suites of transforms and codecs pass what obeys, and each case fails what breaks it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from headrace.plugins import BadRecordError, Codec, Record, RecordSchema, Transform, option
from headrace.plugins.testing import CodecSuite, TransformSuite
from headrace.plugins.testing.doubles import DocumentCodec, sample_records

RECORDS = sample_records(6)


@dataclass(frozen=True)
class Config:
    """An option with a text."""

    field: str = option("The field.", default="n")


class Twice(Transform):
    """Doubles a number."""

    config_class: ClassVar[type] = Config

    def one(self, record: Record) -> Record | None:
        """Return a copy with the double."""
        return record.changed(value={"n": 2 * record.value["n"]})


class InPlace(Twice):
    """Changes what it was given."""

    def one(self, record: Record) -> Record | None:
        """Change it."""
        record.value["n"] += 0  # type: ignore[index]  # What the contract forbids.
        record.headers = (*record.headers, ("seen", b""))
        return record


class Counting(Twice):
    """Gives each record another number."""

    count = 0

    def one(self, record: Record) -> Record | None:
        """Count."""
        self.count += 1
        return record.changed(value={"n": self.count})


class Undeclared(Twice):
    """Adds a field, and does not say so."""

    def one(self, record: Record) -> Record | None:
        """Add it."""
        return record.changed(value={**record.value, "more": 1})


class Missing(Twice):
    """Says that a field is there, and leaves it out."""

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Add a field."""
        fields = [*schema.value["fields"], {"name": "more", "type": "int"}]
        value = {**schema.value, "fields": fields}
        return RecordSchema.of(schema.table, schema.text, key=schema.key, value=value)


class Nowhere(Twice):
    """Has no topic for a record."""

    def topic(self, topic: str) -> str:
        """Return nothing."""
        del topic
        return None  # type: ignore[return-value]  # What the contract forbids.


class Undocumented(Twice):
    """Has an option without a text."""

    @dataclass(frozen=True)
    class Bare:
        """The option."""

        field: str = option("", default="n")

    config_class = Bare


class Texts(Codec):
    """Writes `repr`, and no value that is not a number."""

    def key(self, record: Record) -> bytes | None:
        """Return the key."""
        return None if record.key is None else repr(record.key).encode()

    def value(self, record: Record) -> bytes:
        """Return the value, if it is a number."""
        if not isinstance(record.value["n"], int):
            raise BadRecordError("no number")
        return repr(record.value).encode()


class NoBytes(Texts):
    """Writes text."""

    def value(self, record: Record) -> bytes:
        """Return text."""
        return repr(record.value)  # type: ignore[return-value]  # What the contract forbids.


class Numbering(Texts):
    """Writes another value each time."""

    count = 0

    def value(self, record: Record) -> bytes:
        """Write it with a number."""
        Numbering.count += 1
        return super().value(record) + b"%d" % self.count


class Blind(Texts):
    """Writes all alike."""

    def value(self, record: Record) -> bytes:
        """Check it, and write nothing of it."""
        return super().value(record)[:0]


class Keyed(Texts):
    """Makes up a key."""

    def key(self, record: Record) -> bytes | None:
        """Return the key, or `None` as text."""
        return repr(record.key).encode()


class Careless(Texts):
    """Lets an error through that is not named."""

    def value(self, record: Record) -> bytes:
        """Add to it."""
        return repr(record.value["n"] + 0).encode()


class TestTwice(TransformSuite):
    """A transform that obeys."""

    @pytest.fixture
    def transform(self) -> Transform:
        """Return it."""
        return Twice(Config(), "value")


class TestTexts(CodecSuite):
    """A codec that obeys."""

    @pytest.fixture
    def codec(self) -> Codec:
        """Return it."""
        return Texts()

    @pytest.fixture
    def bad(self) -> Record | None:
        """Return a record without a number."""
        return BAD


class TestDocuments(CodecSuite):
    """The codec of the doubles obeys."""

    @pytest.fixture
    def codec(self) -> Codec:
        """Return it."""
        return DocumentCodec()


BAD = RECORDS[0].changed(value={"n": None})
Case = Callable[[Sequence[Record]], None]


def of_transform(kind: type[Twice], case: str) -> Case:
    """Return a case of the suite, with a transform of *kind*."""
    transform = kind(Config(), "value")
    suite = getattr(TransformSuite(), f"test_{case}")
    needs_none = case in ("topics_are_texts", "declares_itself")
    return lambda records: suite(transform) if needs_none else suite(transform, records)


def of_codec(kind: type[Texts], case: str) -> Case:
    """Return a case of the suite, with a codec of *kind*."""
    suite = getattr(CodecSuite(), f"test_{case}")
    more = (BAD,) if case == "a_bad_record_is_alone" else ()
    return lambda records: suite(kind(), records, *more)


CASES = {
    "in place": of_transform(InPlace, "leaves_records_alone"),
    "another each time": of_transform(Counting, "does_the_same_again"),
    "undeclared": of_transform(Undeclared, "records_fit_their_schema"),
    "missing": of_transform(Missing, "records_fit_their_schema"),
    "nowhere": of_transform(Nowhere, "topics_are_texts"),
    "undocumented": of_transform(Undocumented, "declares_itself"),
    "text": of_codec(NoBytes, "writes_bytes"),
    "numbered": of_codec(Numbering, "writes_bytes"),
    "blind": of_codec(Blind, "tells_values_apart"),
    "a key of its own": of_codec(Keyed, "without_a_key"),
    "careless": of_codec(Careless, "a_bad_record_is_alone"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_breaks_a_rule_is_found(name: str) -> None:
    """The case of the suite that is about it fails."""
    with pytest.raises((AssertionError, TypeError)):
        CASES[name](sample_records(6))
