"""The durable data of the framework: the stores of jobs, and the board beside them."""

from headrace.plugins import MissingRequirementError
from headrace.plugins.stores.contract import (
    QUARANTINE_BYTES_MAX,
    Commit,
    Counters,
    KeptLoss,
    LeaseRow,
    Loss,
    Owner,
    Plan,
    PlanChangedError,
    Plans,
    QuarantineFullError,
    SplitState,
    StateLostError,
    StoreUnavailableError,
    Succeed,
    Successor,
    TableCounts,
    WorkerRow,
    add_counters,
)
from headrace.plugins.stores.control_store import ALL_JOBS, Publication, PublicationState, Seen

__all__ = [
    "ALL_JOBS",
    "QUARANTINE_BYTES_MAX",
    "Commit",
    "Counters",
    "KeptLoss",
    "LeaseRow",
    "Loss",
    "Owner",
    "Plan",
    "PlanChangedError",
    "Plans",
    "Publication",
    "PublicationState",
    "QuarantineFullError",
    "Seen",
    "SplitState",
    "StateFileError",
    "StateLockedError",
    "StateLostError",
    "StateNewerError",
    "StoreUnavailableError",
    "Succeed",
    "Successor",
    "TableCounts",
    "WorkerRow",
    "add_counters",
]


class StateFileError(MissingRequirementError):
    """The state file cannot be used: not headrace's, not readable, or on a network file system."""

    code = "state_file"


class StateNewerError(StateFileError):
    """A newer headrace wrote the state file."""

    code = "state_newer"


class StateLockedError(StoreUnavailableError):
    """Another process keeps the state file locked. The file is intact: it may work later."""

    code = "state_locked"
