"""Two tables of the same logs: one leaves the job of both, or starts elsewhere, and returns.

Sources, readers, holds, the store and forking are real. What the jobs may do to each other happens
step by step: one reads ahead, crashes, commits late; checks observe both.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar, Final

import structlog
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.connector.foundation.states import Desired
from headrace.connector.stores import Commit
from headrace.connector.stores.job_forks import begin_apart, separate
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.connector.stores.target_state import Board, Route, fork_name
from headrace.plugins import Batch, Context, Demand, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.model.checks.tables import LEVELS, TablesChecks
from helpers.model.logs import OTHER, SCHEMA_OF_TWO, TABLE, Mutation, NodeLog
from helpers.model.machines.machine import keys, numbers

BASE: Final = "model"
ROUTES: Final = {TABLE: f"cdc.{TABLE}", OTHER: f"cdc.{OTHER}"}
FORK: Final = fork_name(BASE, ROUTES[OTHER])
NODES: Final = ("a", "b", "c")
SPLITS: Final = 2
ROWS_MAX: Final = 60
FATES: Final = ("publish", "commit", "release", "end")  # Before which of its steps a job crashes.
LONG_S: Final = 1_000_000  # Nothing expires, and nothing is dropped.
READS_MAX: Final = 200
STEP_MS: Final = 4_900
_SMALL: Final = Demand(records_max=3, bytes_max=300, linger_ms=1 << 30)
_NO_LOG: Final[structlog.stdlib.BoundLogger] = structlog.wrap_logger(
    structlog.ReturnLogger(), processors=[]
)


class Side:
    """A job of one table or of both: its readers, and the commit that it crashed with, if any."""

    def __init__(self, world: "Pair", name: str, tables: tuple[str, ...]) -> None:
        """Take its splits from their owners, and continue at the committed positions."""
        self.world, self.name, self.tables = world, name, tables
        self.late: Commit | None = None
        self.begin()

    def begin(self) -> None:
        """Open readers at the committed positions."""
        self.store = SqliteStore.open(self.world.file, self.name)
        self.source = self.world.source(self.name, self.tables)
        splits = self.source.plan()
        self.plan = self.store.register([split.split_id for split in splits])
        self.owner = f"w{next(self.world.owners)}"
        self.tokens = self.store.claim(self.owner, self.store.leases(), STEP_MS)
        self.seqs: dict[str, int] = {}
        self.readers = {}
        for split in splits:
            state = self.store.load(split.split_id, self.tokens[split.split_id])
            self.seqs[state.split] = state.seq
            at = state.position
            resume = None if at is None else self.source.decode_position(at)
            self.readers[state.split] = self.source.open(split, resume)

    def end(self) -> None:
        """Drop what is not committed."""
        self.source.close()
        self.store.close()

    def crash(self) -> None:
        """Crash, and restart."""
        self.end()
        self.begin()

    def read(self, split: str, fate: str = "") -> bool:
        """Read a batch of a split, publish it and commit it; it crashes before the step *fate*."""
        found = self.readers[split].read(_SMALL)
        if not isinstance(found, Batch):
            return False
        seq = self.seqs[split]
        commit = Commit(
            split=split,
            plan=self.plan,
            token=self.tokens[split],
            owner=self.owner,
            previous=seq,
            seq=seq + 1,
            position=found.end.encode(),
            counters={},
        )
        if fate != "publish":
            reported = [record.document() for record in found.records()]
            self.world.checks.published(self.tables, reported, again=fate == "commit")
        if fate in {"publish", "commit"}:
            self.late = commit
            self.crash()
            return True
        refused = self.store.commit([commit])
        self.world.checks.check(not refused, f"I2: {refused} of the owner")
        self.world.checks.committed(self.name, split, self.tables)
        self.seqs[split] += 1
        if fate != "release":
            self.readers[split].release(found.end)
            self.world.look()
        if fate:
            self.crash()
        return True

    def read_all(self) -> None:
        """Read until nothing is left."""
        for _ in range(READS_MAX):
            came = [self.read(split) for split in list(self.readers)]
            if not any(came):
                return
        raise AssertionError("it goes on for ever")

    def states(self) -> Mapping[str, CdcState | None]:
        """Return what it has committed, by split."""
        with closing(SqliteStore.open(self.world.file, self.name)) as store:
            states = store.states()
        return {s.split: CdcState.decode(s.position) if s.position else None for s in states}

    def commit_late(self) -> None:
        """Commit what it crashed with: its splits have another owner now."""
        if self.late is not None:
            refused = self.store.commit([self.late])
            self.world.checks.check(refused, "I2: a commit of a former owner was taken")
            self.late = None


class Pair:
    """Three logs, a state file, and one job or two."""

    def __init__(self, folder: Path, level: str, *, is_one: bool) -> None:
        """Start with one job of both tables, or with one job of each."""
        self.folder, self.file = folder, folder / "state.db"
        self.level = level
        self.clock = DrivenClock()
        self.owners = count(1)
        self.written: list[Mutation] = []
        self.logs = {name: NodeLog(name, folder / name) for name in NODES}
        replication = {"class": "SimpleStrategy", "replication_factor": "3"}
        (folder / "schema.cql").write_text(SCHEMA_OF_TWO.format(replication=replication))
        self.checks = TablesChecks(self.logs, level)
        self.sides = {BASE: Side(self, BASE, (TABLE, OTHER) if is_one else (TABLE,))}
        with self.board() as board:
            for route in ROUTES.values():
                board.add_route(Route(route, BASE, "k", Desired.RUNNING))
        if not is_one:
            self.begin_apart()

    def config(self, tables: tuple[str, ...]) -> CassandraConfig:
        """Return the options of a job of *tables*."""
        options: Mapping[str, object] = {
            "nodes": {name: str(log.folder) for name, log in self.logs.items()},
            "schema": str(self.folder / "schema.cql"),
            "consistency": self.level,
            "splits": SPLITS,
            "tables": list(tables),
            "disposal": "delete",
            "expiry_seconds": LONG_S,
            "dedup_window_seconds": LONG_S,
            "complete_seconds": LONG_S,
        }
        return parse_config(CassandraConfig, options)

    def source(self, name: str, tables: tuple[str, ...]) -> CassandraSource:
        """Return the source of a job of *tables*."""
        with closing(SqliteStore.open(self.file, name)) as store:
            key = store.job_key()
        context = Context(job=name, clock=self.clock, job_key=key, log=_NO_LOG)
        return CassandraSource(self.config(tables), context)

    @contextmanager
    def board(self) -> Iterator[Board]:
        """Yield the target states of the state file, in a transaction."""
        with closing(open_notes(self.file)) as connection:
            board = connection.board
            with connection.transaction():
                yield board

    # ---- jobs ----

    def begin_apart(self) -> None:
        """Start the other table at the beginning of the logs, also if its job has read further."""
        with self.board() as board:
            board.remove_route(ROUTES[OTHER])
        self.go_on(TABLE)
        with closing(open_notes(self.file)) as connection:
            assert begin_apart(connection, BASE, ROUTES[OTHER]) == FORK
        with self.board() as board:
            board.add_route(Route(ROUTES[OTHER], FORK, "k", Desired.RUNNING))
        self.checks.restart(OTHER)
        self.sides[FORK] = Side(self, FORK, (OTHER,))

    def fork(self) -> None:
        """Stop the other table for a moment."""
        with self.board() as board:
            board.want(ROUTES[OTHER], Desired.STOPPED)
        self.end()
        with closing(open_notes(self.file)) as connection:
            assert separate(connection, BASE, busy=())
        with self.board() as board:
            board.want(ROUTES[OTHER], Desired.RUNNING)
        self.go_on(TABLE)
        self.sides[FORK] = Side(self, FORK, (OTHER,))
        self.checks.fork(BASE, FORK)

    def come_back(self) -> None:
        """Drop the other table, and create it again: it starts where the first one's job is."""
        with self.board() as board:
            board.remove_route(ROUTES[OTHER])
            board.add_route(Route(ROUTES[OTHER], BASE, "k", Desired.RUNNING))
        self.checks.come_back(OTHER)
        self.go_on(TABLE, OTHER)

    def go_on(self, *tables: str) -> None:
        """Continue with one job only, of *tables*."""
        self.end()
        self.sides = {BASE: Side(self, BASE, tables)}

    def verify(self) -> None:
        """Check all that is committed."""
        self.checks.verify({side.name: side.states() for side in self.sides.values()})

    def end(self) -> None:
        """Stop all jobs."""
        for side in self.sides.values():
            side.end()

    def write(self, key: int, tables: tuple[str, ...], nodes: Sequence[str]) -> None:
        """Write a row to each of *tables*, which *nodes* log."""
        mutation = Mutation(key, (len(self.written),), tables=tables)
        self.written.append(mutation)
        for node in nodes:
            self.logs[node].write(mutation)

    def look(self) -> None:
        """Check the segments that vanished."""
        if gone := self.checks.gone():
            states = {side.name: side.states() for side in self.sides.values()}
            self.checks.check_release(gone, states)

    def sync(self) -> None:
        """Let all nodes sync."""
        for log in self.logs.values():
            log.sync(self.clock.monotonic_ms())

    def read_all(self) -> None:
        """Let all jobs read all logs."""
        for side in self.sides.values():
            side.read_all()


kinds: Final = st.sampled_from([(TABLE,), (OTHER,), (TABLE, OTHER), (OTHER, TABLE)])
readers: Final = st.sampled_from(["", "0", "1", "01"])
copies: Final = st.sampled_from([1, 2, 2, 3, 3])


def has_room(machine: "Tables") -> bool:
    """Return whether more may be written."""
    return len(machine.pair.written) < ROWS_MAX


class Tables(RuleBasedStateMachine):
    """Rules change a `Pair`; after each rule the checks run."""

    levels: ClassVar[tuple[str, ...]] = tuple(LEVELS)

    def __init__(self) -> None:
        """Make a folder."""
        super().__init__()
        self.folder = Path(mkdtemp(prefix="headrace-tables-"))
        self.pair: Pair

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Choose a level, and whether there are two jobs from the start."""
        level, is_one = data.draw(st.sampled_from(self.levels)), data.draw(st.booleans())
        self.pair = Pair(self.folder, level, is_one=is_one)

    def side(self, which: int) -> Side:
        """Return one of the jobs."""
        return list(self.pair.sides.values())[which % len(self.pair.sides)]

    # ---- the logs ----

    @precondition(has_room)
    @rule(
        key=keys,
        tables=kinds,
        copies=copies,
        turn=numbers,
        readers=readers,
    )
    def write(
        self, key: int, tables: tuple[str, ...], copies: int, turn: int, readers: str
    ) -> None:
        """Write to one table or to both, on some of the nodes; some of the jobs read it."""
        self.pair.write(key, tables, [NODES[(turn + i) % 3] for i in range(copies)])
        self.pair.sync()
        for which in readers:
            self.side(int(which)).read_all()

    @precondition(lambda self: self.pair.written)
    @rule(which=numbers, node=st.sampled_from(NODES))
    def copy(self, which: int, node: str) -> None:
        """Log the same bytes again, on any node."""
        written = self.pair.written
        self.pair.logs[node].write(written[-1 - which % len(written)])
        self.pair.sync()

    @rule(node=st.sampled_from(NODES))
    def roll(self, node: str) -> None:
        """Let a node complete its segment."""
        self.pair.logs[node].roll(self.pair.clock.monotonic_ms())

    # ---- the jobs ----

    @precondition(has_room)
    @rule(which=numbers, key=keys, tables=kinds, fate=st.sampled_from(FATES))
    def die(self, which: int, key: int, tables: tuple[str, ...], fate: str) -> None:
        """Crash a job amid a batch, or after it; its commit arrives when others continue."""
        side = self.side(which)
        self.pair.write(key, tables, NODES)
        self.pair.sync()
        for split in list(side.readers):
            side.read(split, fate)
        side.commit_late()

    @rule(which=numbers, passes=st.integers(1, 3))
    def get_ahead(self, which: int, passes: int) -> None:
        """Let one job read while time passes, and the other one not."""
        side = self.side(which)
        for _ in range(passes):
            self.pair.clock.advance(STEP_MS)
            side.read_all()

    @rule(is_fork=st.booleans())
    def fork_or_come_back(self, is_fork: bool) -> None:  # noqa: FBT001 (drawn)
        """Fork the other table, restart it beside the first one, or return it to the first job."""
        if is_fork:
            self.pair.begin_apart()
        elif FORK in self.pair.sides:
            self.pair.come_back()
        else:
            self.pair.fork()

    # ---- what must hold ----

    @invariant()
    def nothing_is_broken(self) -> None:
        """Check what each job has committed."""
        if "pair" in self.__dict__:
            self.pair.verify()

    def teardown(self) -> None:
        """Read all logs, and check again."""
        try:
            if "pair" in self.__dict__ and not self.pair.checks.wrong:
                for log in self.pair.logs.values():
                    log.roll(self.pair.clock.monotonic_ms())
                self.pair.read_all()
                self.nothing_is_broken()
                self.pair.checks.check_end()
        finally:
            if "pair" in self.__dict__:
                self.pair.end()
            shutil.rmtree(self.folder, ignore_errors=True)
