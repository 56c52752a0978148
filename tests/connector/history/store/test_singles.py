"""A row that had one change is kept as that change, and its readers do not see that."""

from pathlib import Path

import pytest

from headrace.connector.history.store.contract import PARTITION
from headrace.connector.history.store.singles import Singles
from headrace.connector.rows.byte_folding import is_single, single_of
from headrace.connector.rows.folding import TableView
from headrace.connector.rows.message_pack import BadStateError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, file_of, settled
from helpers.histories.places import Places
from helpers.histories.rows import SCHEMA, TABLE, change, delivery

NOW_US = 1_700_000_000_000_000
HEAD = single_of(SCHEMA.schema_id)
INSERT = change(written_us=NOW_US, of=(1, 1), note="a")
UPDATE = change("UPDATE", written_us=NOW_US + 1, of=(1, 1), total=2)
RANGE = change("DELETE_RANGE", written_us=NOW_US, of=(2,), between=(1, 5))


def content(*changes: object) -> list[bytes]:
    """Return changes as a sink gets them."""
    return list(delivery(*changes).encoded.values)  # type: ignore[arg-type]  # Of `change`.


def state(*changes: object) -> bytes:
    """Return the state that these changes of one row make."""
    fold, made = TableView(SCHEMA).fold, None
    for each in content(*changes):
        fold.read(each)
        made = fold.fold(made)
    assert made is not None
    return made


@pytest.mark.parametrize("apart", [False, True])
def test_each_store_yields_states_that_are_folded(
    each_store: Places,  # noqa: ARG001 (it chooses)
    tmp_path: Path,
    apart: bool,  # noqa: FBT001
) -> None:
    """Of rows and partitions with one change, and with two: of one commit, or *apart*."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))
    writer = kept.writer()
    for changes in ((INSERT, RANGE), (UPDATE,)):
        writer.submit(delivery(*changes), settled)
        if apart:
            assert writer.commit({}, FOREVER_MS)
    assert writer.commit({}, FOREVER_MS)
    (part,) = writer._file.parts  # noqa: SLF001 (what it writes)
    keys = delivery(INSERT, RANGE).encoded.keys
    first, second = (key or b"" for key in keys)
    with part.reading():
        ((row, folded),) = part.states_of(first)
        assert state(INSERT, UPDATE) == folded
        names = [(first, row), (second, PARTITION)]
        expected = {(*names[0], folded), (*names[1], state(RANGE))}
        assert expected == {*part.states(names)}
    writer.close()


def test_the_file_has_the_change_until_there_is_a_second(tmp_path: Path) -> None:
    """Neither is a change folded that comes alone, nor are two kept. With `ttl_events` all are."""
    found = []
    for number, options in enumerate(({}, {"ttl_events": "true"})):
        folder = tmp_path / str(number)
        writer = Kept(
            DrivenClock(), **beside(folder, table=TABLE, seed="empty"), **options
        ).writer()
        for each in (INSERT, UPDATE):
            writer.submit(delivery(each), settled)
            assert writer.commit({}, FOREVER_MS)
            ((kept,),) = file_of(writer).run("SELECT content FROM states").fetchall()
            found.append(kept.endswith(HEAD + content(each)[0]))
        writer.close()
    assert [True, False, False, False] == found


def test_a_damaged_one_says_what_helps() -> None:
    """A change that does not fit its schema, and one of a schema that the history does not have."""
    singles = Singles(lambda: {1: SCHEMA})
    whole = HEAD + content(INSERT)[0]
    assert is_single(whole)
    assert state(INSERT) == singles.folded(whole) == singles.folded(state(INSERT))
    for damaged, said in (
        (whole[:40], "the only change of a row is damaged"),
        (HEAD, "the only change of a row is damaged"),
        (single_of(b"?" * 16) + whole, "names an unknown schema, 3f3f"),
        (whole[:9], "names an unknown schema"),
    ):
        with pytest.raises(BadStateError, match=rf"(?s){said}.*ALTER CDC"):
            singles.folded(damaged)
