"""Changes that misread a log whose ids restart."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.sources.cassandra.commitlog import manifest
from headrace.sources.cassandra.commitlog.manifest import place_of
from headrace.sources.cassandra.reading import cursor
from headrace.sources.cassandra.state import gaps
from headrace.sources.cassandra.state.cdc_state import StoredGap
from helpers.sabotage.rules import Patch, Sabotage


def passes_over_a_node_set_up_anew(patch: Patch) -> None:
    """Treat all that is below the marker as read."""
    patch.setattr(manifest, "_belongs", lambda *_: True)


def loses_nothing_with_an_old_log(patch: Patch) -> None:
    """Continue in a new log as if the old one had been read to its end."""
    real = gaps.gap_before

    def gap_before(*args: Any, present: Sequence[int], **more: Any) -> StoredGap | None:  # noqa: ANN401 (as they came)
        found = real(*args, present=present, **more)
        is_other = found and (
            place_of(found.end.segment_id)[0] != place_of(found.begin.segment_id)[0]
        )
        return None if is_other else found

    patch.setattr(cursor, "gap_before", gap_before)


def forgets_what_was_listed(patch: Patch) -> None:
    """Store how far each log was read, and not which segments it had."""
    show = manifest.Manifest._show  # noqa: SLF001 (the place of the mistake)

    def show_nothing(self: manifest.Manifest) -> None:
        show(self)
        self.stored = ()

    patch.setattr(manifest.Manifest, "_show", show_nothing)


# How the message starts of the check that must find it.
NEW_GENERATIONS: Final[Mapping[Sabotage, str]] = {
    passes_over_a_node_set_up_anew: "I5",
    loses_nothing_with_an_old_log: "I10",
    forgets_what_was_listed: "I1",
}
