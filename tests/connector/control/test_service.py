"""Statements change the catalogue wholly or not at all, and DESCRIBE shows it."""

import contextlib
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.connector.control.errors import AlreadyExistsError, InUseError, NotFoundError
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script, parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite import file as sqlite_file
from headrace.connector.stores.sqlite.file import connect
from headrace.connector.stores.sqlite.store import SqliteValues
from headrace.plugins import ConfigError

TWO = """
CREATE DATA_SINK k WITH bus://a,b?line=2 AND seats = 7;
CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k;
CREATE DATA_SOURCE flow ON TABLE "Shop"."table" WITH k AND job = 'j';
"""


def run(service: ControlService, text: str) -> ResultTable:
    """Execute all statements of *text* and return the last one's answer."""
    result = ResultTable()
    for parsed in parse_script(text):
        result = service.execute(parsed.statement)
    return result


def test_describe(service: ControlService) -> None:
    """The lists show names, and the statements that create the objects."""
    assert ResultTable() == run(service, TWO)

    assert ResultTable(
        ("name", "plugin", "create_statement"),
        (("k", "bus", "CREATE DATA_SINK k WITH 'bus://a,b?line=2' AND seats = 7;"),),
    ) == run(service, "DESCRIBE DATA_SINKS")
    start = "start it: headrace worker WORKER.yaml"
    assert ResultTable(
        ("name", "sink", "state", "problem", "create_statement"),
        (
            (
                "flow.Shop.table",
                "k",
                "UNASSIGNED",
                f"not_started: no worker runs job j; {start}",
                """CREATE DATA_SOURCE flow ON TABLE "Shop"."table" WITH k AND job = 'j';""",
            ),
            (
                "flow.shop.orders",
                "k",
                "UNASSIGNED",
                f"not_started: no worker runs job k; {start}",
                "CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k;",
            ),
        ),
    ) == run(service, "DESCRIBE DATA_SOURCES")


def test_describe_one(service: ControlService) -> None:
    """One object is shown as its statement, or as its config with a column for each key."""
    run(service, TWO)

    assert (("CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k;",),) == run(
        service, "DESC DATA_SOURCE flow ON TABLE shop.orders"
    ).rows
    assert ResultTable(
        ("name", "connector.class", "keyspace", "table", "sink"),
        (("flow.shop.orders", "RiverFlowSource", "shop", "orders", "k"),),
    ) == run(service, "DESC DATA_SOURCE flow ON TABLE shop.orders AS CONFIG")
    assert ResultTable(
        ("name", "connector.class", "bus.stops", "line", "seats"),
        (("k", "BusSink", "a,b", "2", "7"),),
    ) == run(service, "DESC DATA_SINK k AS CONFIG")


def test_recreate(service: ControlService, tmp_path: Path) -> None:
    """The statements that DESCRIBE shows create the same catalogue elsewhere."""
    run(service, TWO)
    lists = ("DESC DATA_SINKS", "DESC DATA_SOURCES")
    shown = [run(service, text) for text in lists]

    with contextlib.closing(open_notes(tmp_path / "other.db")) as connection:
        other = ControlService(connection)
        for result in shown:
            for row in result.rows:
                run(other, row[-1])
        assert shown == [run(other, text) for text in lists]


@pytest.mark.parametrize(
    ("text", "error", "message", "hint"),
    [
        ("CREATE DATA_SINK k WITH bus://x", AlreadyExistsError, "data sink k already exists",
         "IF NOT EXISTS, or first DROP DATA_SINK k;"),
        ("CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k", AlreadyExistsError,
         "flow.shop.orders already exists", "DROP DATA_SOURCE flow ON TABLE shop.orders;"),
        ("CREATE DATA_SOURCE flow ON TABLE a.b WITH kk", NotFoundError, "data sink kk does",
         "did you mean k?"),
        ("DROP DATA_SINK zz", NotFoundError, "data sink zz does", "there are: k"),
        ("DESC DATA_SINK zz", NotFoundError, "data sink zz does", "there are: k"),
        ("DROP DATA_SINK k", InUseError, "used by flow.Shop.table and 1 more",
         'first DROP DATA_SOURCE flow ON TABLE "Shop"."table";'),
        ("DROP DATA_SOURCE flow ON TABLE shop.orderz", NotFoundError,
         "data source flow.shop.orderz does", "mean flow ON TABLE shop.orders?"),
        ("DESC DATA_SOURCE flow ON TABLE shop.x", NotFoundError, "data source", ""),
    ],
)  # fmt: skip
def test_refused(
    service: ControlService, text: str, error: type[ConfigError], message: str, hint: str
) -> None:
    """A statement that conflicts with the catalogue changes nothing; the error suggests another."""
    run(service, TWO)
    before = run(service, "DESC DATA_SINKS"), run(service, "DESC DATA_SOURCES")

    with pytest.raises(error) as caught:
        run(service, text)

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert 2 == caught.value.exit_status
    assert before == (run(service, "DESC DATA_SINKS"), run(service, "DESC DATA_SOURCES"))


def test_drop(service: ControlService) -> None:
    """A dropped object is gone; a sink can be dropped after its last source."""
    run(
        service,
        """
        CREATE DATA_SINK k WITH bus://a; CREATE DATA_SOURCE flow ON TABLE a.b WITH k;
        DROP DATA_SOURCE flow ON TABLE a.b; DROP DATA_SINK k;
        DROP DATA_SOURCE IF EXISTS flow ON TABLE a.b; DROP DATA_SINK IF EXISTS k;
        """,
    )

    assert () == run(service, "DESC DATA_SOURCES").rows
    assert () == run(service, "DESC DATA_SINKS").rows


def test_if_not_exists_is_checked(service: ControlService) -> None:
    """IF NOT EXISTS keeps an existing object, and still checks the statement."""
    run(service, TWO)
    run(service, "CREATE DATA_SINK IF NOT EXISTS k WITH bus://other")

    assert "bus://a,b" in run(service, "DESC DATA_SINK k").rows[0][0]
    with pytest.raises(ConfigError):
        run(service, "CREATE DATA_SINK IF NOT EXISTS k WITH bus://other?lnie=1")


def test_alter(service: ControlService) -> None:
    """DESCRIBE shows what ALTER changed; an ALTER that is refused changes nothing."""
    run(service, f"{TWO} CREATE DATA_SINK z WITH bus://z")
    run(service, "ALTER DATA_SINK k WITH line = 3; ALTER DATA_SINK IF EXISTS none WITH line = 3")
    run(service, "ALTER DATA_SOURCE flow ON TABLE shop.orders WITH z AND job = 'other'")
    run(service, "ALTER DATA_SOURCE IF EXISTS flow ON TABLE no.such WITH z")

    statement = "CREATE DATA_SINK k WITH 'bus://a,b' AND seats = 7 AND line = 3;"
    source = "CREATE DATA_SOURCE flow ON TABLE shop.orders WITH z AND job = 'other';"
    assert statement == run(service, "DESC DATA_SINK k").rows[0][0]
    assert source == run(service, "DESC DATA_SOURCE flow ON TABLE shop.orders").rows[0][0]
    for text, error in [
        ("ALTER DATA_SINK none WITH line = 3", NotFoundError),
        ("ALTER DATA_SINK k WITH seats = 1000", ConfigError),
        ("ALTER DATA_SINK k WITH 'tram://a'", ConfigError),
        ("ALTER DATA_SOURCE flow ON TABLE shop.orders WITH none", NotFoundError),
        ("ALTER DATA_SOURCE flow ON TABLE shop.none WITH z", NotFoundError),
        ("ALTER DATA_SOURCE flow ON TABLE shop.orders WITH colour = 'red'", ConfigError),
    ]:
        with pytest.raises(error):
            run(service, text)
    assert statement == run(service, "DESC DATA_SINK k").rows[0][0]
    assert source == run(service, "DESC DATA_SOURCE flow ON TABLE shop.orders").rows[0][0]


class Catalogued(RuleBasedStateMachine):
    """CREATE and DROP, with and without conditions, compared with a dictionary."""

    names = st.sampled_from(["a", "b", "C"])
    tables = st.sampled_from(["ks.t", "ks.u", '"Ks".t'])

    @initialize()
    def open(self) -> None:
        """Start with an empty catalogue."""
        self.folder = tempfile.TemporaryDirectory()
        self.connection = open_notes(Path(self.folder.name) / "state.db")
        self.service = ControlService(self.connection)
        self.sinks: set[str] = set()
        self.sources: dict[str, str] = {}

    def teardown(self) -> None:
        """Close the file."""
        self.connection.close()
        self.folder.cleanup()

    def attempt(self, text: str, *, allowed: bool) -> None:
        """Execute *text*, which succeeds or is refused, as *allowed* says."""
        with contextlib.nullcontext() if allowed else pytest.raises(ConfigError):
            self.service.execute(parse_statement(text))

    @rule(name=names, conditional=st.booleans())
    def create_sink(self, name: str, *, conditional: bool) -> None:
        """Create a sink; if the name is in use it is refused, or ignored with IF NOT EXISTS."""
        condition = "IF NOT EXISTS " if conditional else ""
        text = f'CREATE DATA_SINK {condition}"{name}" WITH bus://a'
        self.attempt(text, allowed=conditional or name not in self.sinks)
        self.sinks.add(name)

    @rule(name=names, conditional=st.booleans())
    def drop_sink(self, name: str, *, conditional: bool) -> None:
        """Drop a sink; it is refused while it is used, and refused or ignored if it is missing."""
        used = name in self.sources.values()
        text = f'DROP DATA_SINK {"IF EXISTS " if conditional else ""}"{name}"'
        self.attempt(text, allowed=not used and (conditional or name in self.sinks))
        self.sinks -= {name} if not used else set()

    @rule(table=tables, sink=names, conditional=st.booleans())
    def create_source(self, table: str, sink: str, *, conditional: bool) -> None:
        """Create a source, which needs its sink; a table has one source."""
        condition = "IF NOT EXISTS " if conditional else ""
        text = f'CREATE DATA_SOURCE {condition}flow ON TABLE {table} WITH "{sink}"'
        if table in self.sources:
            self.attempt(text, allowed=conditional)
        else:
            self.attempt(text, allowed=sink in self.sinks)
            self.sources |= {table: sink} if sink in self.sinks else {}

    @rule(table=tables, conditional=st.booleans())
    def drop_source(self, table: str, *, conditional: bool) -> None:
        """Drop a source; it is refused or ignored if it is missing."""
        text = f"DROP DATA_SOURCE {'IF EXISTS ' if conditional else ''}flow ON TABLE {table}"
        self.attempt(text, allowed=conditional or table in self.sources)
        self.sources.pop(table, None)

    @rule(table=tables, sink=names)
    def alter_source(self, table: str, sink: str) -> None:
        """Let a source write to another sink, which must exist."""
        text = f'ALTER DATA_SOURCE flow ON TABLE {table} WITH "{sink}"'
        allowed = table in self.sources and sink in self.sinks
        self.attempt(text, allowed=allowed)
        self.sources |= {table: sink} if allowed else {}

    @invariant()
    def lists(self) -> None:
        """Compare the lists with the dictionary."""
        sinks = self.service.execute(parse_statement("DESC DATA_SINKS")).rows
        sources = self.service.execute(parse_statement("DESC DATA_SOURCES")).rows
        assert self.sinks == {row[0] for row in sinks}
        expected = {(f"flow.{table}".replace('"', ""), k) for table, k in self.sources.items()}
        assert expected == {row[:2] for row in sources}


TestCatalogued = Catalogued.TestCase
TestCatalogued.settings = settings(max_examples=40, stateful_step_count=20)


@pytest.mark.parametrize(("condition", "winners"), [("", 1), ("IF NOT EXISTS ", 8)])
def test_race(tmp_path: Path, condition: str, winners: int) -> None:
    """Of several statements that create the same sink at once one succeeds, the others fail."""
    start = threading.Barrier(8)
    outcomes: list[str] = []

    def create(stop: int) -> None:
        with contextlib.closing(open_notes(tmp_path / "state.db")) as connection:
            start.wait(timeout=180)
            service = ControlService(connection)
            try:
                run(service, f"CREATE DATA_SINK {condition}k WITH bus://stop{stop}")
            except AlreadyExistsError as error:
                outcomes.append(error.code)
            else:
                outcomes.append("done")

    threads = [threading.Thread(target=create, args=(stop,)) for stop in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=180)

    assert sorted(["done"] * winners + ["already_exists"] * (8 - winners)) == sorted(outcomes)


def test_locked(service: ControlService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state file that another process locks is a named error, and nothing is changed."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 1)
    with contextlib.closing(open_notes(tmp_path / "state.db")) as mine:
        impatient = ControlService(mine)
        with (
            contextlib.closing(connect(tmp_path / "state.db")) as other,
            SqliteValues(other).grouped(),
            pytest.raises(StoreUnavailableError, match="locked"),
        ):
            run(impatient, "CREATE DATA_SINK k WITH bus://a")

    assert () == run(service, "DESC DATA_SINKS").rows
