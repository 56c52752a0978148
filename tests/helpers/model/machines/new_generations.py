"""The model with nodes that are set up again, or whose clocks are set back: ids restart."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headrace.sources.cassandra.commitlog.manifest import place_of
from helpers.model.machines.changes import Changing
from helpers.model.machines.machine import has_room, keys, numbers
from helpers.model.ring import KEYS


def knows_the_logs(machine: "NewGenerations") -> bool:
    """Return whether all splits have committed that they read the newest generation of each log.

    A generation that started and ended between two checks cannot be known.
    """
    world = machine.world
    return all(
        node in line.markers
        and place_of(line.markers[node][0])[0] == world.ring.nodes[node].generation
        for line in world.checks.committed
        for node in world.ring.version.members
    )


class NewGenerations(Changing):
    """See the module."""

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(key=keys, turn=numbers, is_wiped=st.booleans(), reads=st.booleans(), kills=st.booleans())
    def begin_anew(self, key: int, turn: int, is_wiped: bool, reads: bool, kills: bool) -> None:  # noqa: FBT001 (drawn)
        """Restart a replica's log with lower ids, with or without its old files, read or not.

        The job may be restarted meanwhile.
        """
        ring = self.world.ring
        for each in KEYS:
            ring.write(each, 1, self.replicas(each))
        self.sync_all()
        self.world.calm(2)
        if not knows_the_logs(self):
            return
        holders = self.replicas(key)
        log = ring.nodes[holders[turn % len(holders)]]
        waiting = ring.write(key, 1, [log.name])
        self.sync_all()
        if reads:
            self.world.calm(2)
        log.restart_ids(self.now_ms, is_wiped=is_wiped)
        if kills:
            self.restart()
        ring.write(key, 1, holders)
        self.sync_all()
        self.world.calm(2)
        ring.write(key, 1, holders)
        for name in holders:  # No reader knows how far the new log is durable.
            ring.nodes[name].sync(self.now_ms, index=name != log.name)
        self.world.calm(1)
        log.roll(self.now_ms)
        ring.log(waiting, holders)
        self.sync_all()
        self.world.calm(2)
