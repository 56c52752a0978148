"""Transforms and predicates: the last step before records are encoded.

A transform gets records in the sink's envelope, in batches, and returns any number of them. Found
by name in the entry-point groups `headrace.transforms` and `headrace.predicates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from headrace.plugins.records.record import Record, RecordSchema


class Transform(ABC):
    """A configured transform. For one thread."""

    config_class: ClassVar[type]

    def __init__(self, config: Any, part: str) -> None:  # noqa: ANN401 (a config_class)
        """Keep both arguments; *part* is `key` or `value`, as in `MaskField$Key`."""
        self.config = config
        self.part = part

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return the schema of transformed records of *schema*; called once per schema."""
        return schema

    def topic(self, topic: str) -> str:
        """Return the topic of transformed records of *topic*.

        Subjects of schemas are named after it, so a transform that sets `record.topic` overrides
        it. If it raises, these records have no topic: `one` must then raise for each of them.
        """
        return topic

    @abstractmethod
    def one(self, record: Record) -> Record | None:
        """Return the transformed *record*, perhaps itself or a `record.changed(…)`; None drops it.

        The framework sets the new schema. If it raises, this record is dead-lettered.
        """

    def batch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield all transformed records of a batch; override it to make more of them."""
        for record in records:
            made = self.one(record)
            if made is not None:
                yield made


class Predicate(ABC):
    """A configured predicate: it selects the records for a transform."""

    config_class: ClassVar[type]

    def __init__(self, config: Any) -> None:  # noqa: ANN401 (a config_class)
        """Keep *config*."""
        self.config = config

    def of_table(self, table: str, topic: str) -> bool | None:  # noqa: ARG002 (for overrides)
        """Return the result for all records of *table*, with topic *topic*; None if they differ."""
        return None

    @abstractmethod
    def test(self, record: Record) -> bool:
        """Return whether the transform is for *record*."""
