"""The common parts of stores, and of states that a sink keeps for them."""

from collections.abc import Collection
from typing import Final

PLAN: Final = 1  # The first plan generation; it increases when the splits of a job change.
JOB_KEY_BYTES: Final = 16
# In place of a head's copied place: the sink's state under the name is of a removed job.
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
