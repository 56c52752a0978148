"""What a store keeps for a job whose sink keeps the states of its splits: copies of these.

The sink is asked first; see `transactional`. A copy is for all that shows states or moves them, and
knows of which place it is a copy, how often a command set its position, and whether the sink may
have a newer state.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from headrace.connector.stores import Commit, SplitState, Store
from headrace.plugins import EncodedPosition, HeadraceError


@dataclass(frozen=True, slots=True)
class Copied:
    """Of which place a head is a copy, if any, and how often its position was set by command."""

    kept_in: str
    moved: int


class StateCopies(ABC):
    """The copies of one job's states. Belongs to the store's thread; all calls may block.

    Each raises StoreUnavailableError where the store does not answer: it may be repeated.
    """

    @abstractmethod
    def load(self, split: str, token: int) -> SplitState:
        """Do what `Store.load` promises, but keep what `prepare` put away."""

    @abstractmethod
    def copied(self, split: str) -> Copied:
        """Return what is known of the copy of a split's state."""

    @abstractmethod
    def prepare(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """Store the losses of a commit that is decided elsewhere; they are not visible yet.

        Returns whether the copy says that it was applied, and why it must not be.
        """

    @abstractmethod
    def copy(self, commit: Commit, copied: Copied) -> HeadraceError | None:
        """Copy a state that was committed elsewhere; its losses are seen from now on."""

    @abstractmethod
    def adopt(self, state: SplitState, position: EncodedPosition, copied: Copied) -> None:
        """Copy a state at *position* that was found elsewhere, whatever the one here is.

        Raises:
            LeaseLostError: the head carries another token.

        """

    @abstractmethod
    def cover(self, split: str, token: int, seq: int) -> None:
        """Continue from *seq*: the losses up to it are seen, those of later ones are forgotten.

        From here on the head may be behind; see `released`.
        """

    @abstractmethod
    def released(self, split: str, token: int) -> None:
        """Note that the head is what the sink has, as its owner knows."""

    @abstractmethod
    def outrank(self, split: str, token: int, moved: int) -> None:
        """Let the head of a forked job take precedence over what is kept elsewhere as *moved*."""

    @abstractmethod
    def raise_token(self, split: str, token: int) -> None:
        """Have the next claim of *split* exceed *token*."""

    @abstractmethod
    def behind(self) -> frozenset[str]:
        """Return the splits of which the sink may have a newer state than the copy.

        Those that have an owner, or whose owner died: perhaps between commit and copy.
        """

    @abstractmethod
    def believe(self) -> None:
        """Take the states here for the newest: no sink keeps those of the job any more."""


class CopyingStore(Store):
    """A store that can keep copies."""

    @abstractmethod
    def state_copies(self) -> StateCopies:
        """Return those of the job."""

    def keep_key(self) -> None:
        """Put the job's key where the loss of the store's last commits leaves it."""
