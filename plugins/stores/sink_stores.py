"""What schema stores and claim stores are: where consumers find what messages do not hold.

That is the schemas of messages, and values that are too large for one, which name their places.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from headrace.plugins.context import Context
from headrace.plugins.errors import BadRecordError, MissingRequirementError
from headrace.plugins.records.record import RecordSchema


class SchemaRefusedError(BadRecordError):
    """The store does not take this schema under this subject, however often it is asked."""

    code = "schema_refused"


class Published(msgspec.Struct, frozen=True):
    """What a store calls a schema: a number, and 16 bytes; None where it has none."""

    number: int | None = None
    guid: bytes | None = None


class SchemaStore(ABC):
    """A configured schema store, of the entry-point group `headrace.schema_stores`.

    It is used on a thread of its own, which may wait for it; nothing else waits.
    """

    config_class: ClassVar[type]
    numbered: ClassVar[bool] = True
    """Whether what it publishes has a number or a guid, which `schema.framing` needs."""

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both; connect to nothing yet."""
        self.config = config
        self.context = context

    @abstractmethod
    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Keep the Avro schema *text* under *subject*; the same twice changes nothing.

        *schema* is the one it belongs to, for stores that know schemas by the table's id.

        Raises:
            RetriableError: the store does not answer.
            SchemaRefusedError: it does not take it.

        """

    def find(self, schema_id: bytes, number: Published) -> Mapping[str, str]:
        """Return the Avro schemas that a consumer's message names, by subject; empty if none.

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
        """Give back connections. Safe to call twice."""


class ClaimStore(ABC):
    """A configured claim store, of the entry-point group `headrace.claim_stores`.

    It is used on the data thread: the stream waits for it. Consumers make one to read with `get`.
    """

    config_class: ClassVar[type]

    def __init__(self, config: Any) -> None:  # noqa: ANN401 (a config_class)
        """Keep it; connect to nothing yet."""
        self.config = config

    @abstractmethod
    def put(self, name: str, content: bytes) -> str:
        """Keep *content* durably and return where, as consumers find it.

        *name* is made of the content, so the same content has the same name, and may be there.

        Raises:
            RetriableError: it cannot be kept now.

        """

    def get(self, place: str) -> bytes:
        """Return what `put` kept at *place*, for consumers; messages name the place.

        Raises:
            RetriableError: it does not have it, or cannot be read now.
            MissingRequirementError: this store cannot be read.

        """
        raise MissingRequirementError(
            f"cannot read {place!r}", place=type(self).__name__, hint="its plugin has no `get`"
        )
