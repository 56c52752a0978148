"""The Cassandra store on a real node: what every store must do, an outage, and CEP-44's table."""

import time
import uuid
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from cassandra.cluster import Session

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.cassandra import cdc_state
from headrace.connector.stores.cassandra.session import CassandraStoreConfig, StoreUnreachableError
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.plugins import TokenRange
from headrace.plugins.testing import KeyValueSuite
from headrace.plugins.testing.doubles import sample_records
from headrace.plugins.testing.key_value_suite import Open
from helpers.jobs.rig import Rig
from helpers.stores.store_driver import claim, commit_of
from helpers.stores.store_suite import StoreSuite
from real.servers.cassandra import Cassandra
from real.servers.proxy import Proxy
from real.store.table_driver import CassandraDriver

pytestmark = pytest.mark.real

KEYSPACE = "Kept"
RECONNECT_SECONDS_MAX = 600


@pytest.fixture(scope="module")
def config(node: Cassandra) -> CassandraStoreConfig:
    """Return the options of a store on the node."""
    return CassandraStoreConfig(
        contact_points=(f"{node.host}:{node.port}",), keyspace=KEYSPACE, replication_factor=1
    )


class TestCassandraStore(StoreSuite):
    """The Cassandra store passes the suite."""

    @pytest.fixture
    def driver(self, config: CassandraStoreConfig) -> CassandraDriver:
        """Return a driver of a new job."""
        return CassandraDriver(config)


class TestCassandraValues(KeyValueSuite):
    """Its backend passes the suite of backends."""

    @pytest.fixture
    def opened(self, config: CassandraStoreConfig, session: Session) -> Open:
        """Return what connects to a keyspace without rows."""
        CassandraValues.open(config).close()
        for table in ("decided", "plain"):
            session.execute(f'TRUNCATE "{KEYSPACE}".{table}')
        return lambda: CassandraValues.open(config)


class CutRig(Rig):
    """A pipeline that commits through a proxy."""

    def __init__(self, path: Path, config: CassandraStoreConfig) -> None:
        """Use the tables that *config* names."""
        self.config = config
        self.job = f"job-{uuid.uuid4()}"
        self.stores: list[CassandraStore] = []
        super().__init__(path, outstanding_records_max=40, retry_ms_max=3_600_000)

    def open_store(self) -> CassandraStore:
        """Open it again."""
        self.stores.append(CassandraStore.open_job(self.config, self.job))
        return self.stores[-1]

    def wait_for_stores(self) -> None:
        """Wait until all are connected again."""
        until = time.monotonic() + RECONNECT_SECONDS_MAX
        for store in self.stores:
            while True:
                try:
                    store.leases()
                    break
                except StoreUnavailableError:
                    assert time.monotonic() < until
                    time.sleep(0.1)


def test_an_outage_stops_commits_not_reading(
    node: Cassandra, config: CassandraStoreConfig, tmp_path: Path
) -> None:
    """While the store does not answer, records flow up to the bound; then it resumes by itself."""
    with Proxy(node.port) as proxy:
        through = replace(
            config, contact_points=(f"{node.host}:{proxy.port}",), request_seconds_max=1
        )
        rig = CutRig(tmp_path, through)
        rig.open({"a": 20})
        rig.gain()
        rig.until(lambda: rig.committed() == 20)
        proxy.cut()
        rig.splits["a"] += [[record] for record in sample_records(100, first=20)]
        rig.until(lambda: len(rig.written()) == 120)
        with pytest.raises(StoreUnavailableError):
            rig.committed()
        assert [] == rig.closed()

        proxy.mend()
        rig.wait_for_stores()
        rig.until(lambda: rig.committed() == 120)
        assert [120, []] == [len(rig.written()), rig.closed()]
        for store in rig.stores:
            store.close()


def test_the_tables_are_those_of_cep_44(
    config: CassandraStoreConfig, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cdc_state` has a split's range and compressed state, and a time to live; no head has one.

    The state is whole, also where the last commit only named a chunk.
    """
    job = f"job-{uuid.uuid4()}"
    split = "3-of-8"
    with closing(CassandraStore.open_job(config, job)) as store:
        store.register([split])
        token, chunks = claim(store, split=split), {"one": b"1"}
        tokens = TokenRange(number=3, first=-(2**62), behind=-(2**61))
        first = commit_of(token, split=split, chunks=chunks)
        store.commit([msgspec.structs.replace(first, tokens=tokens)])
        monkeypatch.setattr(cdc_state, "PUBLISH_SECONDS", 0)
        later = commit_of(token, split=split, previous=1, seq=2, kept=chunks)
        store.commit([msgspec.structs.replace(later, tokens=tokens)])
    session.set_keyspace(KEYSPACE)
    (state,) = session.execute(
        'SELECT split, start, "end", state, TTL(state) AS ttl FROM cdc_state '
        "WHERE job_id = %s AND split = 3",
        (job,),
    )
    options = {
        row.table_name: (row.default_time_to_live, row.gc_grace_seconds)
        for row in session.execute(
            "SELECT table_name, default_time_to_live, gc_grace_seconds FROM system_schema.tables "
            "WHERE keyspace_name = %s",
            (KEYSPACE,),
        )
    }

    assert (3, -(2**62), -(2**61)) == (state.split, state.start, state.end)
    found = msgspec.msgpack.decode(zlib.decompress(state.state))
    expected = {"split": split, "plan": 1, "seq": 2, "head": b"head", "chunks": chunks, "names": []}
    assert expected == {name: found[name] for name in expected}
    assert 0 < state.ttl <= 30 * 24 * 3600
    published = ("cdc_state", "cdc_state_chunks")
    assert [(30 * 24 * 3600, 0)] * 2 == [options[table] for table in published]
    assert {0} == {ttl for table, (ttl, _) in options.items() if table not in published}


def test_a_state_survives_its_connection(config: CassandraStoreConfig) -> None:
    """What was committed is loaded by another process, and orphans of the first one are removed."""
    job = f"job-{uuid.uuid4()}"
    with closing(CassandraStore.open_job(config, job)) as store:
        store.register(["a"])
        token = claim(store)
        store.commit([commit_of(token, chunks={"one": b"1"})])
        unsure = commit_of(token, previous=7, seq=8, chunks={"two": b"2"})
        assert ["a"] == list(store.commit([unsure]))
    with closing(CassandraStore.open_job(config, job, create=False)) as store:
        state = store.load("a", claim(store, "w2"))

        assert {"one": b"1"} == (state.position and state.position.chunks)


def test_nobody_answers() -> None:
    """Without a node the store says where it looked, with the status of the environment."""
    config = CassandraStoreConfig(contact_points=("127.0.0.1:1",))
    with pytest.raises(StoreUnreachableError, match="127") as caught:
        CassandraStore.open_job(config, "job")

    assert ("store_unreachable", 3) == (caught.value.code, caught.value.exit_status)


def test_tables_are_not_made_for_who_only_looks(config: CassandraStoreConfig) -> None:
    """A command that reads makes no keyspace."""
    other = replace(config, keyspace="nowhere")
    with pytest.raises(StoreUnreachableError, match="no table"):
        CassandraStore.open_job(other, "job", create=False)


def test_services_are_shown(config: CassandraStoreConfig, session: Session, tmp_path: Path) -> None:
    """Their configurations are where CEP-44 has them, as plain text, until they are gone."""
    session.set_keyspace(KEYSPACE)
    with closing(CassandraStore.open_notes(config, beside=tmp_path)) as notes:
        catalogue = Catalogue(notes)

        def shown() -> list[dict[str, str]]:
            rows = session.execute("SELECT config FROM configs WHERE service = 'cdc'")
            return [dict(row.config) for row in rows]

        with catalogue.changing():
            catalogue.set_service("cdc", {"topic": "t"})
        during = shown()
        with catalogue.changing():
            catalogue.set_service("cdc", None)

        assert ([{"topic": "t"}], []) == (during, shown())
