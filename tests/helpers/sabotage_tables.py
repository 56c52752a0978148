"""Ways to let one table's job meddle with another's; see `sabotage` and `model_tables`."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.runtime import joining
from headrace.connector.stores import Commit, sqlite, sqlite_state
from headrace.connector.stores.sqlite_file import transaction
from headrace.plugins import HeadraceError
from headrace.sources.cassandra import hold, parting
from headrace.sources.cassandra.state import CdcState, Marker
from headrace.sources.cassandra.stored_rows import Terms
from sabotage import Patch, Sabotage

Writer = sqlite_state.StateWriter
_OTHERS: Final = "SELECT job FROM heads WHERE split = ? AND job <> ? AND head IS NOT NULL"


def furthest(one: CdcState, other: CdcState) -> Mapping[str, Marker]:
    """Return the later one of the markers of each log."""
    nodes = {*one.markers, *other.markers}
    return {node: max(one.furthest(node), other.furthest(node)) for node in nodes}


def moves_a_marker_of_anothers_job(patch: Patch) -> None:
    """Let the jobs of tables that share their logs share the markers, too."""
    real = Writer.commit

    def commit(self: Writer, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        refused = real(self, commits)
        for each in commits:
            if each.split in refused:
                continue
            mine = sqlite_state.load(self._connection, self._job, each.split)
            assert mine.position is not None
            others = self._connection.execute(_OTHERS, (each.split, self._job)).fetchall()
            for (job,) in others:
                theirs = sqlite_state.load(self._connection, job, each.split)
                assert theirs.position is not None
                state = CdcState.decode(theirs.position)
                made = replace(state, markers=furthest(state, CdcState.decode(mine.position)))
                encoded = made.encode()
                writer = Writer(self._connection, job, quarantine_bytes_max=0)
                with transaction(self._connection):
                    writer._put_chunks(each.split, writer._stored(each.split), encoded)
                    writer._put_head(each.split, theirs.seq, encoded, theirs.counters)
        return refused

    patch.setattr(Writer, "commit", commit)


def joins_wherever_they_stand(patch: Patch) -> None:
    """Make one of two jobs as they are, and go on where the one that is ahead was."""
    real = parting.joined

    def joined(base: CdcState, other: CdcState) -> CdcState | None:
        markers = furthest(base, other)
        return real(replace(base, markers=markers), replace(other, markers=markers))

    patch.setattr(parting, "joined", joined)
    patch.setattr(joining._Attempt, "_have_come", lambda *_: True)


def joins_what_one_knows(patch: Patch) -> None:
    """Let the state of two jobs that became one know what the first of them knew."""
    real = parting._records

    def records(
        state: CdcState, hosts: Sequence[str], keyspaces: list[str], shift: int, number: int
    ) -> object:
        return {} if number else real(state, hosts, keyspaces, shift, number)

    patch.setattr(parting, "_records", records)


def joins_without_shifting_times(patch: Patch) -> None:
    """Take the records of the job whose split time was behind as they are."""

    def terms(hosts: Sequence[int], keyspaces: Sequence[int], _: int, number: int) -> Terms:
        return Terms(hosts, keyspaces, 0, number)

    patch.setattr(parting, "Terms", terms)


def leaves_one_note_for_all_jobs(patch: Patch) -> None:
    """Let the needs of the job that said so last count."""
    patch.setattr(hold.Hold, "_name", lambda _self, split: split)


def begins_where_its_job_stands(patch: Patch) -> None:
    """Let a table that is to begin at the beginning begin where the other one's job is."""

    def begin_beside(self: sqlite.SqliteStore, job: str) -> None:
        assert self.become_copy(job, busy=())

    patch.setattr(sqlite.SqliteStore, "begin_beside", begin_beside)


def takes_commits_of_whoever_died(patch: Patch) -> None:
    """Take a commit of a process whose splits another one has by now."""
    patch.setattr(Writer, "_judge", lambda _self, _commit: (False, None))


# What must notice it: how the judge's words begin.
TABLES: Final[Mapping[Sabotage, str]] = {
    moves_a_marker_of_anothers_job: "I1",
    joins_wherever_they_stand: "I1",
    joins_what_one_knows: "line 33",
    joins_without_shifting_times: "line 33",
    leaves_one_note_for_all_jobs: "I5",
    begins_where_its_job_stands: "I1",
    takes_commits_of_whoever_died: "I2",
}
