"""Folds the stored single changes of rows when their states are read."""

from collections.abc import Callable, Mapping

from headrace.connector.rows.byte_folding import ByteFold, is_single, schema_id_of
from headrace.connector.rows.folding import TableView
from headrace.connector.rows.message_pack import BadStateError
from headrace.connector.serde.transcode.walk import BadAvroError
from headrace.plugins import RecordSchema


class Singles:
    """The singles of one history. For one thread at a time."""

    def __init__(self, schemas: Callable[[], Mapping[int, RecordSchema]]) -> None:
        """*schemas* returns the schemas of the history."""
        self._schemas = schemas
        self._folds: dict[bytes, ByteFold] = {}

    def folded(self, state: bytes) -> bytes:
        """Return a state in its folded form.

        Raises:
            BadStateError: it is damaged.

        """
        if not is_single(state):
            return state
        schema_id = schema_id_of(state)
        fold = self._folds.get(schema_id) or self._fold(schema_id)
        try:
            return fold.alone(state)
        except BadAvroError as error:
            raise damaged(f"the only change of a row is damaged: {error.message}") from error

    def _fold(self, schema_id: bytes) -> ByteFold:
        for each in self._schemas().values():
            if each.schema_id == schema_id:
                made = self._folds[schema_id] = TableView(each).fold
                return made
        raise damaged(f"the state of a row names an unknown schema, {schema_id.hex()}")


def damaged(message: str, place: str = "") -> BadStateError:
    """Return the error of a damaged state, with a repair hint."""
    hint = "exclude the images and include them again: ALTER CDC … INCLUDE (CHANGE)"
    return BadStateError(message, place=place, hint=hint)
