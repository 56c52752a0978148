"""Tasks that frame the logs of a query together, in a folder that they share."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.connector.replay.framing import framed_shards, shared_blocks
from headrace.connector.replay.framing.framed_shards import Framing, framing_of, write_piece
from headrace.connector.replay.framing.shared_blocks import SharedFraming
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.plugins import MissingRequirementError
from helpers.recordings.shards import ring

SHARDS = 8


@pytest.fixture
def framing(monkeypatch: pytest.MonkeyPatch) -> Framing:
    """Return how the logs of a ring are read once, in some small parts."""
    monkeypatch.setattr(framed_shards, "PART_BYTES", 400_000)
    made = framing_of(planned(ring("5.0-ring"), Selection(), shards=SHARDS).shards)
    assert made is not None
    assert 3 < len(made.parts)
    return made


@pytest.fixture
def framed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list of the parts that are framed, each while it is locked for others."""
    found: list[bytes] = []

    def noted(framing: Framing, folder: Path, part: bytes) -> str:
        lock = folder / f"{framing.parts.index(part)}.lock"
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        found.append(part)
        return write_piece(framing, folder, part)

    monkeypatch.setattr(shared_blocks, "write_piece", noted)
    return found


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Lock a file as another task does."""
    with place.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def blocks(shared: SharedFraming, room: Path, splits: Sequence[str]) -> list[bytes]:
    """Return the blocks of each split, as a task has them."""
    found = []
    for split in splits:
        with shared.blocks(room, split) as file:
            found.append(Path(file).read_bytes())
    return found


def test_each_part_is_framed_once(framing: Framing, framed: list[bytes], tmp_path: Path) -> None:
    """All tasks of a plan, also when it is read again, frame each part once."""
    shared = SharedFraming.of(framing)
    first = blocks(shared, tmp_path, framing.splits)

    assert first == blocks(shared, tmp_path, framing.splits)
    assert all(first)
    assert list(framing.parts) == framed
    assert not list((tmp_path / shared.name).glob(".split-*"))


def test_a_part_of_another_task(
    framing: Framing, framed: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that another task frames is waited for, with a bound; if it dies, it is framed."""
    monkeypatch.setattr(shared_blocks, "WAIT_SECONDS_MAX", 0)
    shared = SharedFraming.of(framing)
    folder = tmp_path / shared.name
    folder.mkdir()
    with locked(folder / "1.lock"):
        with pytest.raises(MissingRequirementError, match="has not read its part"):
            blocks(shared, tmp_path, framing.splits)
        assert sorted([framing.parts[0], *framing.parts[2:]]) == sorted(framed)

    assert SHARDS == len(blocks(shared, tmp_path, framing.splits))
    assert sorted(framing.parts) == sorted(framed)


def test_what_a_dead_task_left(framing: Framing, framed: list[bytes], tmp_path: Path) -> None:
    """What a task had framed of a part when it died is not used."""
    whole = blocks(SharedFraming.of(framing), tmp_path / "whole", framing.splits)
    shared = SharedFraming.of(framing)
    folder = tmp_path / shared.name
    folder.mkdir()
    left = folder / write_piece(framing, folder, framing.parts[0])
    os.truncate(left / framing.splits[0], 10)
    framed.clear()

    assert whole == blocks(shared, tmp_path, framing.splits)
    assert list(framing.parts) == framed


def test_a_folder_ends_with_its_use(framing: Framing, tmp_path: Path) -> None:
    """Another plan removes the blocks of plans that no task uses, and those alone."""
    plans = [SharedFraming.of(framing) for _ in range(3)]
    split = framing.splits[0]
    with plans[0].blocks(tmp_path, split) as file:
        assert blocks(plans[1], tmp_path, [split])
        assert {plan.name for plan in plans[:2]} == {each.name for each in tmp_path.iterdir()}
        assert Path(file).exists()
    assert blocks(plans[2], tmp_path, [split])

    assert [plans[2].name] == [each.name for each in tmp_path.iterdir()]


def test_a_folder_that_is_removed_meanwhile(
    framing: Framing, framed: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose folder was removed before it had locked it makes a new one."""
    shared = SharedFraming.of(framing)
    assert blocks(shared, tmp_path, framing.splits[:1])
    flock, removed = fcntl.flock, [tmp_path / shared.name]

    def late(handle: int, how: int) -> None:
        if how == fcntl.LOCK_SH and removed:
            shutil.rmtree(removed.pop())
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)

    assert all(blocks(shared, tmp_path, framing.splits[:1]))
    assert [*framing.parts, *framing.parts] == framed


def test_a_full_disk(framing: Framing, tmp_path: Path) -> None:
    """A task that cannot write a part says so, and leaves the part to others."""

    def full(*_: object) -> str:
        raise MissingRequirementError("it is full")

    shared = SharedFraming.of(framing)
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            shared_blocks, "write_piece", full
        )
        with pytest.raises(MissingRequirementError, match="it is full"):
            blocks(shared, tmp_path, framing.splits)
    assert all(blocks(shared, tmp_path, framing.splits))

    (tmp_path / "file").touch()
    with pytest.raises(MissingRequirementError, match=r"spark\.local\.dir"):
        blocks(shared, tmp_path / "file", framing.splits)
