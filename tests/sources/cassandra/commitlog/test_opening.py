"""Compressed and encrypted segments of real nodes, opened by `inspect` and by the source."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headrace.connector.control.jobs import read_job
from headrace.plugins import Batch, ConfigError, Demand, Position
from headrace.sources.cassandra.inspect.command import main
from helpers.logs.node_logs import batches, everything, open_all, source
from helpers.recordings.corpora import recording


def folder(name: str) -> Path:
    """Return a part of the recordings of wrapped segments."""
    return recording("wrapped") / name


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the password of the key store by a variable."""
    monkeypatch.setenv("KSPW", "cassandra")


def inspected(
    capsys: pytest.CaptureFixture[str], path: Path, *options: str, status: int = 0
) -> list[dict[str, object]]:
    """Return what `headrace inspect` prints of a recording."""
    schema = str(path.parent / "schema.cql")
    assert status == main([str(path), "--schema", schema, *options])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def oracle(name: str, file: str = "oracle.jsonl") -> list[dict[str, object]]:
    """Return what Cassandra's own reader made of it."""
    return [json.loads(line) for line in (folder(name) / file).read_text().splitlines()]


def key_options(store: Path) -> list[str]:
    """Return the options that name the recordings' key store."""
    return ["--keystore", str(store), "--keystore-password", "${env:KSPW}"]


@pytest.mark.parametrize("name", ["lz4", "snappy", "deflate", "zstd", "aes-4.0", "aes-5.0"])
def test_wrapped_logs_read_as_cassandra_reads_them(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """G07: every mutation is what the node's own reader made of it, at the same position."""
    keys = key_options(folder("aes128.jceks")) if name.startswith("aes") else []
    found = inspected(capsys, folder(name) / "segments", "--form", "mutations", *keys)

    assert oracle(name) == found
    assert 30 < len(found)


@pytest.mark.parametrize(
    ("state", "expected"), [("killed", "killed"), ("restarted", "stopped"), ("stopped", "stopped")]
)
def test_a_crash_leaves_what_cassandra_replays(
    state: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while it wrote, after its restart, and stopped: offsets of indexes do not mislead."""
    found = inspected(capsys, folder("crash") / state, "--form", "mutations")

    assert oracle("crash", f"oracle-{expected}.jsonl") == found


def source_options(recorded: Path, cdc_raw: Path, **more: object) -> dict[str, object]:
    """Return the options of a source over one node's log."""
    nodes = {"n1": str(cdc_raw)}
    schema = str(recorded / "schema.cql")
    return {"nodes": nodes, "schema": schema, "consistency": "ONE", "splits": 2, **more}


def replayed(recorded: Path, cdc_raw: Path) -> Iterator[None]:
    """Let the files of a node grow as they did; yield after each change that was seen."""
    cdc_raw.mkdir()
    for line in (recorded / "files.jsonl").read_text().splitlines():
        event = json.loads(line)
        folder, _, name = event.get("file", "").partition("/")
        if folder != "cdc_raw":
            continue
        if event["now"] is None:
            (cdc_raw / name).unlink()
        elif "idx" in event["now"]:
            (cdc_raw / name).write_text(event["now"]["idx"])
        else:
            content = (recorded / "segments" / name).read_bytes()
            (cdc_raw / name).write_bytes(content[: event["now"]["size"]])
        yield


def ids(found: Iterable[Batch]) -> Counter[str]:
    """Return how often each change was published."""
    documents = (record.document() for batch in found for record in batch.records())
    return Counter(f"{d['mutation']}:{d['index']}" for d in documents)


def test_a_growing_compressed_log_is_followed(tmp_path: Path) -> None:
    """Files that grow as a node's did give, change by change, what the whole ones give."""
    recorded = folder("files")
    whole = ids(everything(source_options(recorded, recorded / "segments")))
    made = source(source_options(recorded, tmp_path / "cdc_raw"))
    changes = replayed(recorded, tmp_path / "cdc_raw")
    next(changes)
    readers = open_all(made)
    came = [ids(batches(readers.values())) for _ in changes]
    made.close()

    assert whole == sum(came, Counter())
    assert 2_000 < whole.total() == len(whole)
    assert 5 < sum(map(bool, came)), "it comes as it is written"


def test_a_compressed_log_is_resumed_anywhere() -> None:
    """Stopped and opened again after every batch, nothing is lost and nothing comes twice."""
    recorded = folder("files")
    options = source_options(recorded, recorded / "segments")
    whole = ids(everything(options))
    resume: dict[str, Position] = {}
    found: list[Batch] = []
    while True:
        made = source(options)
        demand = Demand(records_max=400, linger_ms=1 << 30)
        came = [r.read(demand) for r in open_all(made, resume).values()]
        made.close()
        new = [batch for batch in came if isinstance(batch, Batch)]
        if not new:
            break
        found += new
        resume |= {batch.split: batch.end for batch in new}

    assert whole == ids(found)


def test_an_encrypted_log_is_followed() -> None:
    """A job with the key store's options publishes what `inspect` finds."""
    recorded = folder("aes-4.0")
    store = recording("wrapped") / "aes128.jceks"
    keys = {"keystore": str(store), "keystore_password": "cassandra"}
    found = ids(everything(source_options(recorded, recorded / "segments", **keys)))

    assert 100 < found.total() == len(found)


def test_damage_costs_one_section_and_is_kept(tmp_path: Path) -> None:
    """A section that does not unpack is quarantined with its bytes of the file; the rest comes."""
    recorded = folder("files")
    segments = tmp_path / "cdc_raw"
    shutil.copytree(recorded / "segments", segments)
    log = segments / "CommitLog-7-1795238842530.log"
    content = bytearray(log.read_bytes())
    content[40_000:40_100] = bytes(100)  # Inside of the section from 33196 to 88869.
    log.write_bytes(content)
    found = everything(source_options(recorded, segments, gaps="expire"))
    (lost,) = [item for batch in found for item in batch.quarantined()]
    whole = ids(everything(source_options(recorded, recorded / "segments")))

    assert bytes(content[33_196:88_869]) == lost.content
    assert ("bad_block", f"node n1: {log.name}: byte 33208") == (lost.code, lost.place)
    assert ids(found) < whole
    assert whole.total() / 2 < ids(found).total()


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 2, "no_key: {log}: byte 14: an encrypted segment"),
        (["--raw-key", "${env:OTHER}"], 2, "wrong_key: {log}: byte 135: the key 'raw_key' does"),
        (["--raw-key", "${env:SHORT}"], 2, "key_size: raw_key: expected 16, 24 or 32"),
        (["--raw-key", "canary"], 2, "config: --raw-key: is a secret and cannot be written down"),
        (["--raw-key", "${env:GONE}"], 3, "secret_unavailable: --raw-key: ${{env:GONE}} cannot"),
        (["--keystore", "{store}"], 2, "config: --keystore-password: is required"),
        (
            ["--keystore", "{store}", "--keystore-password", "${env:OTHER}"],
            2,
            "key_store_password: {store}: the password does not open it",
        ),
        (["--keystore", "{store}", "--keystore-password", "cassandra"], 2, "config: --keystore-p"),
    ],
)
def test_keys_that_are_wrong_are_named(
    options: list[str],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each mistake has its own error, and none of them shows what was given."""
    monkeypatch.setenv("OTHER", "00" * 16)
    monkeypatch.setenv("SHORT", "00" * 15)
    segments = folder("aes-5.0") / "segments"
    log, store = min(segments.glob("*.log")), recording("wrapped") / "aes128.jceks"
    names = {"log": log, "store": store}
    given = [option.replace("{store}", str(store)) for option in options]
    schema = str(folder("aes-5.0") / "schema.cql")

    assert status == main([str(log), "--schema", schema, *given])
    error = capsys.readouterr().err
    code, _, rest = message.format(**names).partition(": ")
    assert error.startswith(f"error [{code}]: {rest}")
    assert not [secret for secret in ("canary", "00" * 15) if secret in error]


def test_secrets_of_a_job_are_references(tmp_path: Path) -> None:
    """A job file with the password itself is refused; with a reference to it the keys are read."""
    recorded, store = folder("aes-4.0"), recording("wrapped") / "aes128.jceks"
    text = f"""
        job: a
        state: state.db
        source:
          plugin: cassandra
          nodes: {{n1: {recorded / "segments"}}}
          schema: {recorded / "schema.cql"}
          keystore: {store}
          keystore_password: PASSWORD
        sink: {{plugin: "null"}}
        """
    (tmp_path / "bad.yaml").write_text(text.replace("PASSWORD", "cassandra"))
    (tmp_path / "good.yaml").write_text(text.replace("PASSWORD", '"${env:KSPW}"'))

    with pytest.raises(ConfigError, match=r"source\.keystore_password: is a secret") as refused:
        read_job(tmp_path / "bad.yaml")
    config = read_job(tmp_path / "good.yaml").source_config

    assert "${env:HEADRACE_SECRET_KEYSTORE_PASSWORD}" in refused.value.hint
    assert "cassandra" == config.keystore_password
    assert "keystore_password" not in repr(config)
