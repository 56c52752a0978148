"""Transforms and predicates: the last step before records are encoded.

A transform sees records in the envelope that the sink asked for, in batches, and returns as many as
it likes. Found by name in the entry-point groups `headrace.transforms` and `headrace.predicates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from headrace.plugins.records.record import Record, RecordSchema


class Transform(ABC):
    """A configured transform. For one thread."""

    config_class: ClassVar[type]

    def __init__(self, config: Any, part: str) -> None:  # noqa: ANN401 (a config_class)
        """Keep both; *part* is `key` or `value`, as in `MaskField$Key`."""
        self.config = config
        self.part = part

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return the schema that records of *schema* have afterwards; asked once for each."""
        return schema

    def topic(self, topic: str) -> str:
        """Return where records go afterwards that were to go to *topic*.

        Subjects of schemas are named by it, so a transform that sets `record.topic` overrides it.
        If it raises, these records have no topic: `one` must then raise for each of them.
        """
        return topic

    @abstractmethod
    def one(self, record: Record) -> Record | None:
        """Return what becomes of *record*, itself or a `record.changed(…)`; None leaves it out.

        The framework puts the new schema into it. If it raises, this record is dead-lettered.
        """

    def batch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Return what becomes of all records of a batch; override it to make more of them."""
        for record in records:
            made = self.one(record)
            if made is not None:
                yield made


class Predicate(ABC):
    """A configured predicate: which records a transform is for."""

    config_class: ClassVar[type]

    def __init__(self, config: Any) -> None:  # noqa: ANN401 (a config_class)
        """Keep it."""
        self.config = config

    def of_table(self, table: str, topic: str) -> bool | None:  # noqa: ARG002 (some can tell)
        """Say the same of all records of *table*, whose topic is *topic*; None: they differ."""
        return None

    @abstractmethod
    def test(self, record: Record) -> bool:
        """Return whether the transform is for *record*."""
