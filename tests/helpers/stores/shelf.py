"""Positions as a store stores them."""

from headrace.plugins import EncodedPosition, Position
from headrace.sources.cassandra.state.cdc_state import CdcState


class Shelf:
    """Stores every split's whole position: one may name chunks that came with earlier ones."""

    def __init__(self) -> None:
        """Start without positions."""
        self._kept: dict[str, EncodedPosition] = {}

    def put(self, split: str, position: Position) -> None:
        """Store *position*, in the place of the one before."""
        made = position.encode()
        before = self._kept[split].chunks if made.kept else {}
        whole = dict(made.chunks) | {name: before[name] for name in made.kept}
        self._kept[split] = EncodedPosition(made.head, whole)

    def states(self) -> dict[str, CdcState]:
        """Return new states with what is stored."""
        return {split: CdcState.decode(kept) for split, kept in self._kept.items()}
