"""The model with logs that cannot be read for a while, and nodes that are replaced meanwhile."""

from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from helpers.model.logs import NodeLog
from helpers.model.machines.changes import HOMES, Changing, knows_the_ring
from helpers.model.machines.machine import LONG_MS, Machine, has_room, keys, nodes, numbers

UNREADABLE_MAX: Final = 2  # Of five logs: at all times some can be read.


def all_are_readable(machine: Machine) -> bool:
    """Return whether all logs can be read."""
    return not unreadable(machine)


def few_are_unreadable(machine: Machine) -> bool:
    """Return whether one more log may become unreadable."""
    return len(unreadable(machine)) < UNREADABLE_MAX


def unreadable(machine: Machine) -> list[NodeLog]:
    """Return the logs that cannot be read."""
    return [log for log in machine.world.ring.nodes.values() if log.unreadable_ms is not None]


class UnavailableLogs(Changing):
    """See the module."""

    returns: ClassVar[tuple[str, ...]] = ("gap", "publish")

    @precondition(few_are_unreadable)
    @rule(node=nodes)
    def leave(self, node: str) -> None:
        """Make a log unreadable."""
        log = self.world.ring.nodes[node]
        if log.unreadable_ms is None:
            log.leave(self.now_ms)

    @precondition(lambda self: bool(unreadable(self)))
    @rule(turn=numbers)
    def come_back(self, turn: int) -> None:
        """Make a log readable again."""
        logs = unreadable(self)
        logs[turn % len(logs)].come_back()

    @precondition(lambda self: self.world.running)
    @precondition(all_are_readable)
    @precondition(has_room)
    @rule(key=keys, ms=st.sampled_from([10_000, 40_000, LONG_MS]), restarts=st.booleans())
    def be_away(self, key: int, ms: int, restarts: bool) -> None:  # noqa: FBT001 (drawn)
        """Make a replica's log unreadable for some time, during which it is written to."""
        first, node, *_ = self.replicas(key)
        log = self.world.ring.nodes[node]
        early = self.world.ring.write(key, 1, [first])
        self.sync_all()
        self.world.calm(1)
        log.leave(self.now_ms)
        self.world.ring.write(key, 1, self.replicas(key))
        self.sync_all()
        self._rest(ms)
        if restarts:
            self.restart()
            self._rest(10_000)
        self.world.ring.log(early, [node])
        self.sync_all()
        log.come_back()
        self.world.calm(3)
        self._rest(10_000)

    @precondition(lambda self: self.world.running)
    @precondition(all_are_readable)
    @precondition(knows_the_ring)
    @precondition(has_room)
    @rule(key=keys, ms=st.sampled_from([40_000, LONG_MS]))
    def replace(self, key: int, ms: int) -> None:
        """Replace a node whose log is unreadable by another one; in the end the log is readable."""
        ring = self.world.ring
        old, *_ = self.replicas(key)
        tokens = dict(ring.version.tokens)
        new = next((node for node in HOMES if node not in tokens), old)
        after = {node: own for node, own in tokens.items() if node != old} | {new: tokens[old]}
        if new == old or not ring.can_become(tokens=after):
            return
        ring.write(key, 1, self.replicas(key))
        self.sync_all()
        ring.nodes[old].leave(self.now_ms)
        ring.change(self.now_ms, tokens=after)
        self._rest(ms)
        ring.nodes[old].come_back()
        self.world.calm(3)
