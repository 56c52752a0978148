"""Schema stores and claim stores: where consumers find what messages do not contain.

These are the schemas of messages, and values too large for a message, which has a reference.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from headrace.plugins.context import Context
from headrace.plugins.errors import BadRecordError, MissingRequirementError
from headrace.plugins.records.record import RecordSchema


class SchemaRefusedError(BadRecordError):
    """The store will never accept this schema under this subject."""

    code = "schema_refused"


class Published(msgspec.Struct, frozen=True):
    """The ids of a schema in a store: a number, and 16 bytes; None if it assigns none."""

    number: int | None = None
    guid: bytes | None = None


class SchemaStore(ABC):
    """A configured schema store, of the entry-point group `headrace.schema_stores`.

    It is used on its own thread, which may block; nothing else waits for it.
    """

    config_class: ClassVar[type]
    numbered: ClassVar[bool] = True
    """Whether what it publishes has a number or a guid, which `schema.framing` needs."""

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both arguments; connect to nothing yet."""
        self.config = config
        self.context = context

    @abstractmethod
    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Store the Avro schema *text* under *subject*; a repetition changes nothing.

        *schema* is the one it belongs to, for stores that identify schemas by the table's id.

        Raises:
            RetriableError: the store does not answer.
            SchemaRefusedError: the store rejects it.

        """

    def find(self, schema_id: bytes, number: Published) -> Mapping[str, str]:
        """Return the Avro schemas that a consumer's message refers to, by subject; perhaps none.

        A `numbered` store finds the schema of *number*, which it assigned. Others find all that
        were published for *schema_id*.

        Raises:
            RetriableError: the store does not answer.
            MissingRequirementError: it cannot be read.

        """
        del schema_id, number
        raise MissingRequirementError(
            "this schema store cannot be read", place=type(self).__name__, hint="read the state"
        )

    def close(self) -> None:  # noqa: B027 (few have anything to give back)
        """Close connections. Safe to call twice."""


class ClaimStore(ABC):
    """A configured claim store, of the entry-point group `headrace.claim_stores`.

    It is used on the data thread: the stream waits for it. Consumers create one to read with `get`.
    """

    config_class: ClassVar[type]

    def __init__(self, config: Any) -> None:  # noqa: ANN401 (a config_class)
        """Keep *config*; connect to nothing yet."""
        self.config = config

    @abstractmethod
    def put(self, name: str, content: bytes) -> str:
        """Store *content* durably. Return its place, for consumers.

        *name* is derived from the content: equal content has an equal name, and may already exist.

        Raises:
            RetriableError: it cannot be stored now.

        """

    def get(self, place: str) -> bytes:
        """Return the content stored by `put` at *place*, for consumers; messages contain the place.

        Raises:
            RetriableError: the store does not have it, or cannot be read now.
            MissingRequirementError: this store cannot be read.

        """
        raise MissingRequirementError(
            f"cannot read {place!r}", place=type(self).__name__, hint="its plugin has no `get`"
        )
