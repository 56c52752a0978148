"""What a claim store is: where values go that are too large for a message, which names them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class ClaimStore(ABC):
    """A configured claim store, of the entry-point group `headrace.claim_stores`.

    It is used on the data thread: the stream waits for it.
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
