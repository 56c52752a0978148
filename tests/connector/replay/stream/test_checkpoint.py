"""The checkpoint folder: what is written is durable, and a batch that is repeated counts once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.connector.replay.stream.checkpoint import Checkpoint, Known
from headrace.connector.stores import Loss, StateLostError, TableCounts
from headrace.plugins import EncodedPosition, MissingRequirementError
from headrace.plugins.testing.doubles import sample_records

OFFSET = {"n1": 7}
LOSS = Loss(kind="dead_letter", table="ks.t", place="batch 1", code="no", message="no")


def counted(delivered: int) -> TableCounts:
    """Return counters."""
    return TableCounts(cut=delivered, delivered=delivered)


WRITES: list[Callable[[Checkpoint], object]] = [
    lambda c: c.states.store(OFFSET, "a", Known(EncodedPosition(b"1", {}))),
    lambda c: c.set_aside(0, 1, [LOSS]),
    lambda c: c.count_delivered(0, [{"ks.t": counted(1)}]),
    lambda c: c.keep_schemas([sample_records(1)[0].schema]),
]


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Checkpoint], object]
) -> None:
    """It is on disk when the call returns: an fsync that fails is an error, and leaves no file."""
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", _fail)
        with pytest.raises(MissingRequirementError, match="Input/output error"):
            write(Checkpoint(tmp_path))
    assert [] == [each for each in tmp_path.rglob("[!.]*") if each.is_file()]

    write(Checkpoint(tmp_path))
    assert [each for each in tmp_path.rglob("[!.]*") if each.is_file()]


def _fail(_: object) -> None:
    raise OSError(5, "Input/output error")


def test_a_state_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file at a path is the former one until all of the new one is on disk."""
    states = Checkpoint(tmp_path).states
    states.store(OFFSET, "a", Known(EncodedPosition(b"1", {})))
    monkeypatch.setattr(os, "fsync", _fail)
    with pytest.raises(MissingRequirementError):
        states.store(OFFSET, "a", Known(EncodedPosition(b"2", {})))

    assert Known(EncodedPosition(b"1", {})) == states.load(OFFSET, "a")


def test_a_batch_that_is_repeated_counts_once(tmp_path: Path) -> None:
    """Spark repeats the last batch as often as it wants; each call may be of another process."""
    for batch in range(4):
        for _ in range(3):
            Checkpoint(tmp_path).count_delivered(batch, [{"ks.t": counted(10**batch)}, {}])
            so_far = sum(10**each for each in range(batch + 1))
            assert [{"ks.t": counted(so_far)}, {}] == Checkpoint(tmp_path).delivered(batch)

    assert ["2", "3"] == sorted(each.name for each in (tmp_path / "delivered").glob("[0-9]*"))


def test_schemas_are_read_back(tmp_path: Path) -> None:
    """Each one whole, and once; one that is damaged is named."""
    schema = sample_records(1)[0].schema
    for _ in range(2):
        Checkpoint(tmp_path).keep_schemas([schema])
    (found,) = Checkpoint(tmp_path).schemas()
    assert (schema, schema.key, schema.value) == (found, found.key, found.value)

    path = tmp_path / "schemas" / f"{schema.schema_id.hex()}.json"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateLostError, match="the schema of records cannot be read") as caught:
        Checkpoint(tmp_path).schemas()
    assert str(path) == caught.value.place


def test_how_many_records_batches_had(tmp_path: Path) -> None:
    """The last thousand are known after later commits, and those of dead letters count."""
    checkpoint = Checkpoint(tmp_path)
    for batch in range(1_003):
        lost = TableCounts(dead_lettered=1)
        checkpoint.count_delivered(batch, [{"ks.t": counted(batch)}, {"ks.t": lost}])

    assert [0, 0, 0, 4, 1_003, 0] == [checkpoint.records(n) for n in (0, 1, 2, 3, 1_002, 1_003)]


def test_a_process_that_was_forked_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A job is free when its driver ends, though a copy of the lock file is still open."""
    checkpoint = Checkpoint(tmp_path / "orders")
    with checkpoint.running():
        lock = str(checkpoint.folder / "lock")
        numbers = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
        (number,) = [n for n in numbers if os.path.realpath(f"/proc/self/fd/{n}") == lock]
        copy = os.dup(number)
        assert checkpoint.is_running()

    assert not checkpoint.is_running()
    os.close(copy)
