"""What the stores, and what a sink keeps for one, have in common."""

from collections.abc import Collection
from typing import Final

PLAN: Final = 1  # The first plan generation; it increases when the splits of a job change.
JOB_KEY_BYTES: Final = 16
# Replaces the other place of a head: what a sink has under the name belongs to a removed job.
FORKED: Final = "parted"


def restore_hint(what: str) -> str:
    """Return the hint for damage in *what*, which holds the state."""
    return (
        f"restore the {what} from a backup; starting over, as a job of another name does, would "
        "repeat or lose changes"
    )


def not_kept(names: Collection[str]) -> str:
    """Return the message about a position that needs chunks that the store does not have."""
    return f"chunk {min(names)}, kept from an earlier commit, is missing"
