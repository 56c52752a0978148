"""Positions as a store keeps them."""

from headrace.plugins import EncodedPosition, Position
from headrace.sources.cassandra.state.cdc_state import CdcState


class Shelf:
    """Keeps every split's position whole: one may name chunks that came with those before it."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[str, EncodedPosition] = {}

    def put(self, split: str, position: Position) -> None:
        """Keep *position*, in the place of the one before."""
        made = position.encode()
        before = self._kept[split].chunks if made.kept else {}
        whole = dict(made.chunks) | {name: before[name] for name in made.kept}
        self._kept[split] = EncodedPosition(made.head, whole)

    def states(self) -> dict[str, CdcState]:
        """Return what is kept, made anew."""
        return {split: CdcState.decode(kept) for split, kept in self._kept.items()}
