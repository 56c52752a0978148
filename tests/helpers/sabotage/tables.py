"""Changes that let one table's job interfere with another's."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec.structs import replace as replace_key

from headrace.connector.stores import Commit
from headrace.connector.stores.keyed.heads import Heads
from headrace.connector.stores.keyed.losses import Losses
from headrace.connector.stores.keyed.rows import JOB, JobRows, pack
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.sqlite import store as sqlite
from headrace.connector.stores.target_state import fork_name
from headrace.plugins import HeadraceError
from headrace.sources.cassandra.retention import hold
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.model.machines import tables
from helpers.sabotage.rules import Patch, Sabotage
from helpers.stores import file_rows


def furthest(one: CdcState, other: CdcState) -> Mapping[str, Marker]:
    """Return the later marker of each log."""
    nodes = {*one.markers, *other.markers}
    return {node: max(one.furthest(node), other.furthest(node)) for node in nodes}


def moves_a_marker_of_anothers_job(patch: Patch) -> None:
    """Let jobs of tables that share their logs share the markers, too."""
    real = Heads.commit

    def commit(self: Heads, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        refused = real(self, commits)
        for each in commits:
            if each.split in refused:
                continue
            mine = self.state(each.split)
            assert mine.position is not None
            for other in _others(self, each.split):
                theirs = other.state(each.split)
                assert theirs.position is not None
                state = CdcState.decode(theirs.position)
                made = replace(state, markers=furthest(state, CdcState.decode(mine.position)))
                known = other.head(each.split)
                change = other.restart(each.split, known, known.head, made.encode())
                assert [True] == list(self._values.change([change]))
        return refused

    patch.setattr(Heads, "commit", commit)


def _others(heads: Heads, split: str) -> Sequence[Heads]:
    """Return the heads of other jobs with a split of this name, and a position for it."""
    found = file_rows.heads(Path(heads._values.place))
    jobs = {of.job for of, head in found.items() if of.split == split and head.position is not None}
    rows = [JobRows(heads._values, job) for job in jobs - {heads._rows.name}]
    return [Heads(each, Losses(each, bytes_max=0), lambda: None) for each in rows]


def leaves_one_note_for_all_jobs(patch: Patch) -> None:
    """Let all jobs write the same pin, so that the last one counts."""
    patch.setattr(hold.Hold, "_name", lambda _self, split: split)


def begins_where_its_job_stands(patch: Patch) -> None:
    """Start a table that is to start at the beginning where the other one's job is."""

    def begin_apart(notes: NoteCopy, job: str, source: str) -> str:
        fork = fork_name(job, source)
        assert notes.store(fork).become_copy(job, busy=())
        return fork

    patch.setattr(tables, "begin_apart", begin_apart)


def keeps_what_a_former_fork_had(patch: Patch) -> None:
    """Let a table that is forked again continue where it was forked before."""
    real = sqlite.SqliteStore.become_copy

    def become_copy(self: sqlite.SqliteStore, of: str, *, busy: Collection[str]) -> bool:
        return bool(self.leases()) or real(self, of, busy=busy)

    patch.setattr(sqlite.SqliteStore, "become_copy", become_copy)


def forks_with_a_key_of_its_own(patch: Patch) -> None:
    """Let a forked job identify mutations by other digests than its base job."""
    real = sqlite.SqliteStore.become_copy

    def become_copy(self: sqlite.SqliteStore, of: str, *, busy: Collection[str]) -> bool:
        is_done = real(self, of, busy=busy)
        stamp, row = self._job_row()
        assert self._change_job(stamp, {JOB: pack(replace_key(row, key=bytes(16)))})
        return is_done

    patch.setattr(sqlite.SqliteStore, "become_copy", become_copy)


def takes_commits_of_whoever_died(patch: Patch) -> None:
    """Accept a commit of a process whose splits have another owner."""
    patch.setattr(Heads, "_mismatch", lambda _self, _commit, _head: None)


# How the message starts of the check that must find it.
TABLES: Final[Mapping[Sabotage, str]] = {
    moves_a_marker_of_anothers_job: "I1",
    leaves_one_note_for_all_jobs: "I5",
    begins_where_its_job_stands: "I1",
    keeps_what_a_former_fork_had: "line 36",
    forks_with_a_key_of_its_own: "I1",
    takes_commits_of_whoever_died: "I2",
}
