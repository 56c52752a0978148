"""The model with rings and levels that change, logs that lose unread segments, and damage."""

from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from helpers.model.machines.machine import Machine, has_room, keys, numbers
from helpers.model.ring import SPARES, TOKENS

HOMES: Final = {**TOKENS, **SPARES}
_LOOK_MS: Final = 6_000  # By then a job has looked at the ring; less than a lease.
_STEP: Final = 700_000_000_000_000_000  # By which the tokens of a node are moved.


def knows_the_ring(machine: "Changing") -> bool:
    """Return whether all splits have committed the current ring: it changes slowly."""
    world = machine.world
    return all(
        line.parent is not None and line.version == world.ring.version
        for line in world.checks.committed
    )


class Changing(Machine):
    """See the module."""

    policies: ClassVar[tuple[str, ...]] = ("fail", "expire", "assume")

    @precondition(knows_the_ring)
    @rule(node=st.sampled_from(sorted(HOMES)), other=st.sampled_from(sorted(HOMES)))
    def change_ring(self, node: str, other: str) -> None:
        """Let a node leave, join, replace another, or move."""
        tokens = dict(self.world.ring.version.tokens)
        if node in tokens and other in tokens:
            tokens[node] = tuple(token + _STEP for token in tokens[node])
        elif node not in tokens:
            tokens.pop(other, None)
            tokens[node] = HOMES[node]
        else:
            del tokens[node]
        if self.world.ring.can_become(tokens=tokens):
            self.world.ring.change(self.now_ms, tokens=tokens)

    @precondition(knows_the_ring)
    @rule(which=numbers, arrives=st.booleans())
    def alter_keyspace(self, which: int, arrives: bool) -> None:  # noqa: FBT001 (drawn)
        """Change the number of copies; the job restarts with the new schema."""
        factors = self.factors[which % len(self.factors)]
        if self.world.ring.can_become(factors=factors):
            self.world.ring.change(self.now_ms, factors=factors)
            self.restart(arrives=arrives)

    @precondition(knows_the_ring)
    @rule(which=numbers, arrives=st.booleans())
    def change_level(self, which: int, arrives: bool) -> None:  # noqa: FBT001 (drawn)
        """Restart the job at another level."""
        level = self.levels[which % len(self.levels)]
        if self.world.ring.can_become(level=level):
            self.world.ring.change(self.now_ms, level=level)
            self.restart(arrives=arrives)

    def restart(self, *, arrives: bool = True) -> None:
        """Kill all processes and start one."""
        for process in list(self.world.running.values()):
            process.kill(arrives=arrives)
        self.world.start()

    @precondition(lambda self: self.world.running)
    @precondition(knows_the_ring)
    @precondition(has_room)
    @rule(key=keys, restarts=st.booleans())
    def hand_over(self, key: int, restarts: bool) -> None:  # noqa: FBT001 (drawn)
        """Let a node replace another one between the copies of mutations."""
        ring = self.world.ring
        old, other, *_ = self.replicas(key)
        tokens = dict(ring.version.tokens)
        new = next((node for node in HOMES if node not in tokens), old)
        after = {node: own for node, own in tokens.items() if node != old} | {new: tokens[old]}
        if new == old or not ring.can_become(tokens=after):
            return
        early = ring.write(key, 1, [old])
        ring.write(key, 1, [other, new])
        self.sync_all()
        self.world.calm(2)
        ring.change(self.now_ms, tokens=after)
        self.world.clock.advance(_LOOK_MS)
        self.world.calm(2)
        if restarts:
            self.restart()
        ring.log(early, [other, old])
        ring.nodes[old].roll(self.now_ms)
        self.sync_all()
        self.world.calm(2)

    @precondition(has_room)
    @rule(key=keys, turn=numbers, count=st.integers(1, 4))
    def lose(self, key: int, turn: int, count: int) -> None:
        """Remove the oldest segments of a log, read or not; the last of them has a copy."""
        holders = self.replicas(key)
        node = holders[turn % len(holders)]
        self.world.ring.write(key, 1, [node])
        self.world.ring.nodes[node].roll(self.now_ms)
        self.world.ring.nodes[node].lose(count)

    @precondition(lambda self: any(x.is_stopped for x in self.world.checks.committed))
    @rule(policy=st.sampled_from(["expire", "assume"]))
    def accept(self, policy: str) -> None:
        """Accept the gaps, so that lost segments are not waited for."""
        self.world.accept(policy)

    @precondition(has_room)
    @rule(key=keys, turn=numbers, copies=st.integers(1, 3))
    def damage(self, key: int, turn: int, copies: int) -> None:
        """Write to all replicas of a key; some of the copies get a wrong byte."""
        holders = self.replicas(key)
        wrong = {holders[(turn + i) % len(holders)] for i in range(copies)}
        self.world.ring.write(key, 1, holders, damaged=wrong)
        for log in self.world.ring.nodes.values():
            log.sync(self.now_ms)
