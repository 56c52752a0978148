"""CEP-44's `cdc_state` on a real node: a job is started from the rows of another, of any size."""

import json
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from cassandra.cluster import Session
from msgspec.structs import replace

from headrace.connector.stores import Commit, StateLostError
from headrace.connector.stores.cassandra import cdc_state
from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.plugins import TokenRange
from helpers.logs.gap_jobs import GapJob
from helpers.stores.store_driver import claim, commit_of
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

KEYSPACE = "published"


@pytest.fixture(scope="module")
def config(node: Cassandra) -> CassandraStoreConfig:
    """Return the options of a store on the node."""
    return CassandraStoreConfig(
        contact_points=(f"{node.host}:{node.port}",), keyspace=KEYSPACE, replication_factor=1
    )


@pytest.fixture(params=[cdc_state.WHOLE_BYTES_MAX, 0], ids=["one row", "chunks"])
def job(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    config: CassandraStoreConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> GapJob:
    """Return a job that has published rows 0 to 4 and knows one copy of each of rows 5 to 9."""
    monkeypatch.setattr(cdc_state, "WHOLE_BYTES_MAX", request.param)
    made = GapJob(tmp_path, f"old-{uuid.uuid4().hex[:8]}", expiry_seconds=86_400)
    made.keep_states_in(
        {
            "plugin": "cassandra",
            "contact_points": list(config.contact_points),
            "keyspace": KEYSPACE,
            "replication_factor": 1,
        }
    )
    made.log(1, range(5))
    made.log(2, range(5, 10), nodes=("n1",))
    assert 0 == made.run()
    assert [f"k{n}" for n in range(5)] == delivered_keys(made, "out.jsonl")
    return made


def delivered_keys(job: GapJob, name: str) -> list[str]:
    """Return the keys in a file of the sink, in order."""
    path = job.folder / name
    lines = path.read_text().splitlines() if path.exists() else []
    keys = [json.loads(line)["key"]["k"] for line in lines]
    return sorted(bytes.fromhex(key.removeprefix("0x")).decode() for key in keys)


def begin(job: GapJob, *, splits: int, start: str) -> int:
    """Run a new job of another name, with its own output, over the same logs."""
    document = yaml.safe_load(job.path.read_text())
    document["job"] = f"new-{uuid.uuid4().hex[:8]}"
    document["state"] = "new.db"
    document["start"] = start
    document["source"]["splits"] = splits
    document["sink"]["path"] = "new.jsonl"
    job.path.write_text(yaml.safe_dump(document))
    return job.run()


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_job_goes_on_from_the_rows_of_another(job: GapJob, splits: int) -> None:
    """By token range, with other splits: what was published is not again, what waited is found."""
    job.log(3, range(5, 12), nodes=("n2", "n3"))

    assert 0 == begin(job, splits=splits, start=f"cdc_state:{job.name}")

    assert [f"k{n}" for n in (10, 11, 5, 6, 7, 8, 9)] == delivered_keys(job, "new.jsonl")
    job.log(4, range(12, 14))
    assert 0 == job.run()
    assert [f"k{n}" for n in (10, 11, 12, 13, 5, 6, 7, 8, 9)] == delivered_keys(job, "new.jsonl")
    assert 5 == job.books()["mutations.opening"]


def test_the_rows_are_all_that_is_needed(job: GapJob, session: Session) -> None:
    """Not the tables by which the other job continues: they may be lost."""
    session.set_keyspace(KEYSPACE)
    for table in ("decided", "plain"):
        session.execute(f"TRUNCATE {table}")

    assert 0 == begin(job, splits=2, start=f"cdc_state:{job.name}")

    assert [] == delivered_keys(job, "new.jsonl")
    assert 5 == job.books()["mutations.pending"]


def test_a_job_that_was_only_looked_at_is_new(job: GapJob, config: CassandraStoreConfig) -> None:
    """It has a key of its own by then, and takes the other's; a job that started keeps its own."""
    name = f"new-{uuid.uuid4().hex[:8]}"
    with closing(CassandraStore.open_job(config, name)) as store:
        own = store.job_key()
        _, key = store.published(job.name)
        store.adopt(job.name)
        assert key == store.job_key() != own
    other = f"new-{uuid.uuid4().hex[:8]}"
    with closing(CassandraStore.open_job(config, other)) as store:
        store.register(["1-of-1"])
        own = store.job_key()
        store.adopt(job.name)
        assert own == store.job_key()


def test_rows_that_leave_out_tokens_are_refused(
    job: GapJob, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started: what they say nothing of would come again, or be passed over."""
    session.set_keyspace(KEYSPACE)
    session.execute("DELETE FROM cdc_state WHERE job_id = %s AND split = 2", (job.name,))

    assert 0 != begin(job, splits=2, start=f"cdc_state:{job.name}")

    said = capsys.readouterr().err
    assert "no row has what follows token 0" in said
    assert 0 != begin(job, splits=2, start="cdc_state:nobody")
    assert "it has no rows" in capsys.readouterr().err
    assert [] == delivered_keys(job, "new.jsonl")


def whole_ring(token: int, **parts: Any) -> Commit:  # noqa: ANN401 (as `commit_of` takes them)
    """Return a commit of a split that has all tokens."""
    return replace(
        commit_of(token, **parts), tokens=TokenRange(number=1, first=-(1 << 63), behind=1 << 63)
    )


def test_a_large_state_is_copied_in_steps(
    config: CassandraStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit copies some chunks; the row is written when all are there, and names them."""
    monkeypatch.setattr(cdc_state, "WHOLE_BYTES_MAX", 10)
    monkeypatch.setattr(cdc_state, "STEP_BYTES_MAX", 40)
    name, split = f"large-{uuid.uuid4().hex[:8]}", "1-of-1"
    chunks = {f"c{n}": b"%d" % n * 20 for n in range(5)}
    with closing(CassandraStore.open_job(config, name)) as store:
        store.register([split])
        token = claim(store, split=split)
        store.commit([whole_ring(token, split=split, chunks=chunks)])
        for seq in (2, 3):
            with pytest.raises(StateLostError, match="it has no rows"):
                store.published(name)
            again = whole_ring(token, split=split, previous=seq - 1, seq=seq, kept=chunks)
            assert {} == store.commit([again])

        (state,), key = store.published(name)

        assert key == store.job_key()
        assert state.position is not None
        assert (3, chunks) == (state.seq, state.position.chunks)
        monkeypatch.setattr(cdc_state, "PUBLISH_SECONDS", 0)
        fewer = {n: chunks[n] for n in ("c1", "c4")}
        store.commit([whole_ring(token, split=split, previous=3, seq=4, kept=fewer)])
        (state,), _ = store.published(name)
        assert state.position is not None
        assert (4, fewer) == (state.seq, state.position.chunks)


def test_what_was_committed_last_is_there_when_a_split_is_given_back(
    config: CassandraStoreConfig,
) -> None:
    """A split's state is written once a minute, and at the end; also what it only names."""
    name, split = f"last-{uuid.uuid4().hex[:8]}", "1-of-1"
    chunks = {"c1": b"one", "c2": b"two"}
    with closing(CassandraStore.open_job(config, name)) as store:
        store.register([split])
        token = claim(store, split=split)
        store.commit([whole_ring(token, split=split, chunks={"c1": b"one"})])
        store.commit([whole_ring(token, split=split, previous=1, seq=2, chunks=chunks)])
        ((state,), _) = store.published(name)
        assert 1 == state.seq

        store.release("w1", split, token)

        ((state,), _) = store.published(name)
        assert state.position is not None
        assert (2, chunks) == (state.seq, state.position.chunks)
