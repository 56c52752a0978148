"""Replicas of a token, and whether a level is met, found slowly: by walking the ring.

Shares nothing with the code under test: it has only what Cassandra's documentation says of its two
strategies and its levels.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

EVERYWHERE: Final = ""  # The data centre of SimpleStrategy, which has none.
LEVELS: Final = (
    "ONE",
    "TWO",
    "THREE",
    "QUORUM",
    "LOCAL_ONE",
    "LOCAL_QUORUM",
    "EACH_QUORUM",
    "ALL",
)


@dataclass(frozen=True)
class Member:
    """A node of a ring; a joining node is not a replica yet."""

    tokens: tuple[int, ...]
    centre: str
    rack: str
    joining: bool = False


@dataclass(frozen=True)
class Ring:
    """One version of a ring: its nodes, and each keyspace's copies by data centre."""

    members: Mapping[str, Member]
    copies: Mapping[str, Mapping[str, int]]
    level: str
    local: str

    def holders(self, keyspace: str, token: int) -> Sequence[str]:
        """Return the replicas of a token."""
        steps = sorted(
            (at, name)
            for name, member in self.members.items()
            for at in member.tokens
            if not member.joining
        )
        walk = [name for at, name in steps if at >= token] + [name for _, name in steps]
        order = list(dict.fromkeys(walk))
        found = []
        for centre, count in self.copies[keyspace].items():
            if centre == EVERYWHERE:
                found += order[:count]
            else:
                found += self._by_rack([n for n in order if self.members[n].centre == centre])[
                    :count
                ]
        return found

    def _by_rack(self, order: Sequence[str]) -> list[str]:
        """Return the first node of each rack, then the others."""
        first: dict[str, str] = {}
        for name in order:
            first.setdefault(self.members[name].rack, name)
        return [*first.values(), *(name for name in order if name not in first.values())]

    def is_met(self, keyspace: str, token: int, logged: Collection[str]) -> bool:
        """Return whether the copies of these nodes satisfy the level."""
        copies = {centre: count for centre, count in self.copies[keyspace].items() if count}
        seen = [name for name in self.holders(keyspace, token) if name in logged]
        here = {
            centre: sum(centre in {EVERYWHERE, self.members[name].centre} for name in seen)
            for centre in copies
        }
        if self.level == "EACH_QUORUM":
            return all(here[centre] > count // 2 for centre, count in copies.items())
        count, total = len(seen), sum(copies.values())
        if self.level.startswith("LOCAL_") and EVERYWHERE not in copies:
            count, total = here.get(self.local, 0), copies.get(self.local, 0)
        match self.level.removeprefix("LOCAL_"):
            case "QUORUM":
                return count > total // 2
            case "ALL":
                return count == total
            case word:
                return count >= LEVELS.index(word) + 1

    def can_be_met(self, read: Collection[str]) -> bool:
        """Return whether the logs that are read can satisfy the level, for every token.

        Those of one data centre are not enough where others have copies, unless the level is for it
        alone.
        """
        logs = {m.centre for n, m in self.members.items() if n in read and not m.joining}
        for copies in self.copies.values():
            centres = {centre for centre, count in copies.items() if count} - {EVERYWHERE}
            if not self.level.startswith("LOCAL_") and len(centres) > 1 and not centres <= logs:
                return False
        tokens = [at for member in self.members.values() for at in member.tokens]
        return all(self.is_met(k, token, read) for k in self.copies for token in tokens)
