"""What reading one log takes: its bytes, its frames, its digests, the names of its mutations.

The loop is the live path's own. Times are CPU time of all threads, in nanoseconds.
"""

import hashlib
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.recordings import each_segment, segments
from headrace.sources.cassandra.agreement.intake import Intake, Routes
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.framer import WINDOW_BYTES, Framer
from headrace.sources.cassandra.commitlog.segment import index_name, parse_index
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.ring.topology import Node, replica_groups
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue

_KEY: Final = bytes(range(16))
_COPIES: Final = 3
_BYTES_PER_AGREEMENT: Final = 128 * 1024  # Of log; about 400 large or 1,400 small entries.
_BATCH_BYTES: Final = 512 * 1024  # Of mutations; what a worker of eight splits encodes at once.
_NO_BOUND: Final = 1 << 40


def _fed(
    schema: str, treatment: int, *, level: str = "QUORUM"
) -> tuple[Intake, Framer, Routes, Groups]:
    """Return what feeds the log of one node of three, which are the replicas, to one split."""
    known = parse_schema(Path(schema).read_text())
    (keyspace,) = known.keyspaces.values()
    keyspace = replace(
        keyspace, replication={**keyspace.replication, "replication_factor": str(_COPIES)}
    )
    groups = replica_groups([Node(str(n)) for n in range(_COPIES)], [keyspace], level)
    routes = Routes(Catalogue(known), 0)
    routes.treat(0, treatment, 0)
    return Intake(_COPIES, _KEY, 1), Framer(), routes, groups


def bare(log: str) -> Mapping[str, int]:
    """Copy the bytes of a log in memory, and take their CRC-32: what no reader can do without.

    Their MD5, which nothing here needs, tells how fast the machine is.
    """
    copy_ns = crc_ns = md5_ns = log_bytes = 0
    source, target = memoryview(bytearray(WINDOW_BYTES)), memoryview(bytearray(WINDOW_BYTES))
    for path in segments(Path(log)):
        index = parse_index((path.parent / index_name(path.name)).read_bytes())
        left = index.offset if index else 0
        with path.open("rb", buffering=0) as file:
            while left > 0 and (came := file.readinto(source[: min(left, WINDOW_BYTES)])):
                left -= came
                started = time.process_time_ns()
                target[:came] = source[:came]
                copied = time.process_time_ns()
                zlib.crc32(target[:came])
                checked = time.process_time_ns()
                hashlib.md5(target[:came], usedforsecurity=False)
                md5_ns += time.process_time_ns() - checked
                crc_ns += checked - copied
                copy_ns += copied - started
                log_bytes += came
    return {"copy_ns": copy_ns, "crc_ns": crc_ns, "md5_ns": md5_ns, "bytes": log_bytes}


def frame(log: str, schema: str) -> Mapping[str, int]:
    """Read and frame a log with every checksum, as the loop passes over what no one asks for."""
    feed, framer, routes, groups = _fed(schema, constants.IGNORED)
    feed.own(0, Agreement(groups))
    feed.assign(0, 0, 0)
    cpu_ns = 0
    for _ in each_segment(framer, Path(log)):
        found = constants.ENTRY
        started = time.process_time_ns()
        while found == constants.ENTRY:
            found = feed.run(framer, 0, routes, _NO_BOUND, _NO_BOUND, _NO_BOUND)
        cpu_ns += time.process_time_ns() - started
    return {"entries": sum(feed.skipped), "cpu_ns": cpu_ns}


def intake(log: str, schema: str) -> Mapping[str, int]:
    """Read, frame, place and digest a log, and enter it into agreements that are soon dropped.

    One split, one node of three, two copies needed: every entry becomes a record, and none is
    ever agreed. Small tables of records make the agreement's own cost small. What is put down and
    made again between two of them is not timed.
    """
    feed, framer, routes, groups = _fed(schema, constants.SELECTED)
    entries = cpu_ns = 0
    for _ in each_segment(framer, Path(log)):
        found = constants.ENTRY
        while found == constants.ENTRY:
            feed.own(0, Agreement(groups))
            feed.assign(0, 0, 0)
            started = time.process_time_ns()
            found = feed.run(framer, 0, routes, _BYTES_PER_AGREEMENT, _NO_BOUND, _NO_BOUND)
            cpu_ns += time.process_time_ns() - started
            entries += feed.read_of(0, 0)
    return {"entries": entries, "cpu_ns": cpu_ns}


def identify(log: str, schema: str) -> Mapping[str, int]:
    """Make the ids of a log's mutations, those of about as many at once as a batch has."""
    feed, framer, routes, groups = _fed(schema, constants.SELECTED, level="ONE")
    feed.own(0, Agreement(groups))
    feed.assign(0, 0, 0)
    transcoder = Transcoder(None)  # type: ignore[arg-type]  # It encodes nothing.
    mutations = cpu_ns = 0
    for _ in each_segment(framer, Path(log)):
        found = constants.ENTRY
        while found == constants.ENTRY:
            found = feed.run(framer, 0, routes, _NO_BOUND, _BATCH_BYTES, _NO_BOUND)
            agreed = feed.take(0)
            started = time.process_time_ns()
            transcoder.identify(agreed)
            cpu_ns += time.process_time_ns() - started
            mutations += agreed.count
            feed.give_back(agreed)
    return {"mutations": mutations, "cpu_ns": cpu_ns}
