"""The state of a split as a sink keeps it, exactly once: entries in transactions of records.

The entry `head` lists the chunks; each chunk is an entry that never changes. Workers and tasks of
Spark read and write the same entries, so either can continue.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Self

import msgspec

from headrace.connector.stores import Counters, StateLostError
from headrace.connector.stores.keyed.rows import Counts, counters_in, counts_of
from headrace.plugins import EncodedPosition

_HEAD: Final = "head"
_CHUNK: Final = "chunk/"
_VERSION: Final = 1


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """A split's state in the entry `head`: all but the chunks, which it lists."""

    version: int = _VERSION
    key: str
    token: int
    seq: int
    moved: int
    counters: Counts
    chunks: Sequence[str]
    head: bytes
    note: str = ""


class KeptState(msgspec.Struct, frozen=True, kw_only=True):
    """A split's state.

    `key` is a digest of the job's key, `token` that of the lease of its commit, `seq` its number,
    `moved` how often a command has set the position. `note` is the committing engine's data about
    the commit; a worker writes none.
    """

    key: str
    token: int
    seq: int
    moved: int
    position: EncodedPosition
    counters: Counters
    note: str = ""

    @classmethod
    def of(cls, entries: Mapping[str, bytes], place: str) -> Self | None:
        """Read the entries of a split; None if it never had any. Raises StateLostError."""
        if _HEAD not in entries:
            return None
        try:
            head = msgspec.json.decode(entries[_HEAD], type=_Head)
            if head.version != _VERSION:
                raise lost(place, f"the head has version {head.version}, expected {_VERSION}")
            if any(_CHUNK + name not in entries for name in head.chunks):
                raise lost(place, "a chunk is missing")
            chunks = {name: entries[_CHUNK + name] for name in head.chunks}
        except ValueError as error:
            raise lost(place, f"the head cannot be read: {error!r}") from error
        return cls(
            key=head.key,
            token=head.token,
            seq=head.seq,
            moved=head.moved,
            position=EncodedPosition(head.head, chunks),
            counters=counters_in(head.counters),
            note=head.note,
        )

    def entries(self, known: Collection[str]) -> dict[str, bytes | None]:
        """Return the changes to entries with the *known* chunks: head, new chunks, old ones."""
        position = self.position
        head = _Head(
            key=self.key,
            token=self.token,
            seq=self.seq,
            moved=self.moved,
            counters=counts_of(self.counters),
            chunks=position.names,
            head=position.head,
            note=self.note,
        )
        entries: dict[str, bytes | None] = {
            _CHUNK + n: None for n in set(known).difference(position.names)
        }
        for name, content in position.chunks.items():
            if name not in known:
                entries[_CHUNK + name] = content
        return entries | {_HEAD: msgspec.json.encode(head)}


def chunks_in(entries: Mapping[str, bytes]) -> frozenset[str]:
    """Return the names of the chunks that a sink keeps of a split."""
    return frozenset(name.removeprefix(_CHUNK) for name in entries if name.startswith(_CHUNK))


def digest_of(job_key: bytes) -> str:
    """Return a digest that identifies a job's key and does not reveal it."""
    return hashlib.sha256(b"headrace.job_key:" + job_key).hexdigest()[:16]


def lost(place: str, what: str) -> StateLostError:
    """Return the error of a kept state that cannot be used."""
    return StateLostError(
        f"of the state kept with the records, {what}",
        place=place,
        hint="restore what it was in; or give the job another name, and set its positions",
    )
