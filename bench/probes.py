"""What is timed, each in a process of its own: `python -m bench.probes NAME ARGUMENTS`.

ARGUMENTS is a JSON object; a JSON object with the measurements is printed. Times are CPU time of
all threads, in nanoseconds.
"""

import contextlib
import gc
import importlib
import io
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace

from bench.agreed import look_up_ns, per_entry_ns
from bench.errors import ProbeFailedError
from bench.logs import bare, frame, identify, intake
from bench.machine import memory_bytes_max
from bench.many import rings, splits, still, tables
from bench.network import through_agents
from bench.tail import tail
from bench.wide import wide_ddl, wide_updates
from headrace.connector.commands.run import run_main
from headrace.connector.control.jobs import read_job
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.obs.logging import configure
from headrace.connector.serde import Encoder
from headrace.connector.serde.codecs.avro import AvroCodec
from headrace.connector.stores.job import Job
from headrace.plugins import (
    Batch,
    Context,
    Delivery,
    Demand,
    EncodedRecords,
    Encoding,
    Failure,
    NumberPosition,
    Reader,
    RecordBatch,
    RecordSchema,
    Sink,
)
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.source import CassandraSource

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue  # Generic for type checkers only.

Measured = Mapping[str, object]
_KEY: Final = bytes(range(16))
_POLL_EVERY: Final = 5_000  # Records: a batch of the worker's.
_FLUSH_SECONDS: Final = 60
_APPEND_SECONDS: Final = 60
_COMMITTED: Final = 5  # Batches of a split in a commit: some thousand changes.
_DICTIONARIES: Final = 2_000  # Records that fastavro encodes.
_FOLDED_CELLS: Final = 100_000
_IDLE_ROUNDS: Final = 2  # As the worker ends: one split's read may bring another one something.


def agreement(records: int) -> Measured:
    """Enter three copies of so many mutations into one split."""
    with_ns, without_ns = per_entry_ns(records)
    return {"agreement_ns": with_ns - without_ns, "without_ns": without_ns}


def look_up(records: int) -> Measured:
    """Find each of so many pending mutations again."""
    with_ns, without_ns = look_up_ns(records)
    return {"look_up_ns": with_ns - without_ns, "without_ns": without_ns}


def fold(columns: int) -> Measured:
    """Decode updates of a row of *columns*, fold their changes, and read the row."""
    schema = parse_schema(wide_ddl(columns))
    (table,) = schema.tables.values()
    mutations = wide_updates(columns, _FOLDED_CELLS // columns)
    decoder = MutationDecoder(Catalogue(schema))
    folded = Fold(table)
    started = time.process_time_ns()
    for raw in mutations:
        for change in decoder.decode(raw, messaging=12, segment_id=1, position=1).changes():
            folded.add(change)
    (row,) = folded.rows(0)
    cpu_ns = time.process_time_ns() - started
    assert len(row) == columns + 1  # noqa: S101 (else nothing was measured)
    return {"cells": len(mutations) * columns, "cpu_ns": cpu_ns}


def readers(job: str, warm_up: int = 0) -> Measured:
    """Read, agree and encode as the worker does, into its sink, without its store.

    What encoding takes of it is distinguished. With *warm_up* nothing is timed before so many
    changes and the end of a pass over the splits: memory is there by then, and what is made once.
    `passed` of the timed changes, for `passes_ns`, came before the pass that ends with positions.
    """
    configure("warning")
    given = read_job(Path(job))
    writer = given.sink(given.sink_config, _context(given)).open()
    counts = [0]

    def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        assert not failures  # noqa: S101 (a null sink has none)
        counts[0] += len(delivered)

    with _opened(given) as opened:
        encoder, encode_ns, untimed = _encoder(given), 0, 0
        passes_ns = passed = 0
        started = time.process_time_ns()
        for number, batch in enumerate(_batches(given, opened), 1):
            began = time.process_time_ns()
            encoded = encoder.encode(batch, token=1)
            encode_ns += time.process_time_ns() - began
            writer.submit(Delivery(batch, encoded), settle)
            if number % len(opened):
                continue
            if untimed < warm_up <= counts[0]:
                encode_ns, untimed = 0, counts[0]
                started = time.process_time_ns()
            elif not batch.has_end:
                passes_ns, passed = time.process_time_ns() - started, counts[0] - untimed
        cpu_ns = time.process_time_ns() - started
    return {
        "changes": counts[0],
        "timed": counts[0] - untimed,
        "cpu_ns": cpu_ns,
        "encode_ns": encode_ns,
        "passed": passed,
        "passes_ns": passes_ns,
    }


def network(job: str, workers: int = 1) -> Measured:
    """Read through an agent for each node what `readers` reads; count what crosses the network.

    So many *workers* share the splits, each with connections of its own; they take turns. The CPU
    of the agents is counted from their start on until all is read.
    """
    configure("warning")
    with through_agents(Path(job)) as far, contextlib.ExitStack() as stack:
        given = read_job(far.path)
        agents_ns = far.cpu_ns()
        sources, opened = [], []
        for number in range(workers):
            source = given.source(given.source_config, _context(given))
            stack.callback(source.close)
            assert isinstance(source, CassandraSource)  # noqa: S101 (all jobs of benchmarks)
            sources.append(source)
            opened += [source.open(split, None) for split in source.plan()[number::workers]]
        encoder = _encoder(given)
        started = time.process_time_ns()
        changes = sum(len(encoder.encode(b, token=1)) for b in _batches(given, opened))
        cpu_ns = time.process_time_ns() - started
        agents_ns = [b - a for a, b in zip(agents_ns, far.cpu_ns(), strict=True)]
        crossed = sum(source.crossed_bytes for source in sources)
    return {
        "changes": changes,
        "cpu_ns": cpu_ns,
        "agents_ns": sum(agents_ns),
        "agent_ns_max": max(agents_ns),
        "crossed_bytes": crossed,
    }


def run(job: str, by_confluent: bool = False) -> Measured:  # noqa: FBT001, FBT002 (from JSON)
    """Run a job until it is idle: all threads, from the command line on; imports are not timed.

    *by_confluent* takes the way into Kafka that does without machine code.
    """
    configure("warning")
    if by_confluent:
        from headrace.sinks.kafka import clients  # noqa: PLC0415 (only here)

        clients.why_not_direct = lambda: "to compare"  # type: ignore[assignment]
    summary = Path(job).with_name("summary.json")
    read_job(Path(job))  # Imports its plugins.
    started = time.process_time_ns()
    with contextlib.redirect_stdout(io.StringIO()):
        run_main([job, "--until-idle", "--summary-json", str(summary)])
    cpu_ns = time.process_time_ns() - started
    made = json.loads(summary.read_text())["run"]
    return {
        "changes": made["changes"],
        "commits": made["commits"],
        "batches": made["batches"],
        "wall_s": made["wall_seconds"],
        "cpu_ns": cpu_ns,
        "memory_bytes": memory_bytes_max(),
        "modules": sorted(sys.modules),
    }


def imports(modules: Sequence[str]) -> Measured:
    """Import *modules* and do nothing with them."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return {"memory_bytes": memory_bytes_max()}


def produce(job: str) -> Measured:
    """Produce what a job would deliver, with its producer's settings, one callback and headers.

    All is encoded beforehand; only producing is timed, with all threads of librdkafka.
    """
    from confluent_kafka import KafkaError, Message, Producer  # noqa: PLC0415 (only here)

    configure("warning")
    given = read_job(Path(job))
    config = given.sink_config
    with _opened(given) as opened:
        encoder = _encoder(given)
        encoded_batches = (encoder.encode(batch, token=1) for batch in _batches(given, opened))
        batches = [each for each in encoded_batches if len(each)]  # Some have positions alone.
    producer = Producer(config.producer_config())
    producer.list_topics(config.topic, timeout=_FLUSH_SECONDS)
    delivered = [0]

    def arrived(error: KafkaError | None, message: Message) -> None:
        del message
        delivered[0] += error is None

    started = time.process_time_ns()
    for encoded in batches:
        headers: list[tuple[str, str | bytes | None]] = list(encoded.headers[0])
        for begin in range(0, len(encoded), _POLL_EVERY):
            _produce(producer, config.topic, encoded, begin, headers, arrived)
            producer.poll(0)
    producer.flush(_FLUSH_SECONDS)
    return {"changes": delivered[0], "cpu_ns": time.process_time_ns() - started}


def deliver(job: str) -> Measured:
    """Deliver what `produce` produces, by the sink: headers, callbacks and results of its own."""
    configure("warning")
    given = read_job(Path(job))
    with _opened(given) as opened:
        encoder = _encoder(given)
        made = [
            Delivery(batch, encoder.encode(batch, token=1)) for batch in _batches(given, opened)
        ]
    context = _context(given)
    writer = given.sink(given.sink_config, context).open()
    counts = [0]

    def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        assert not failures  # noqa: S101 (else something else was measured)
        counts[0] += len(delivered)

    started = time.process_time_ns()
    for delivery in made:
        writer.submit(delivery, settle)
    writer.drain(context.clock.monotonic_ms() + _FLUSH_SECONDS * 1_000)
    cpu_ns = time.process_time_ns() - started
    writer.close()
    return {"changes": counts[0], "cpu_ns": cpu_ns}


def together(job: str, workers: int) -> Measured:
    """Have so many processes append what a job reads to its history at once.

    All is encoded beforehand. Each process has some of the splits; `wall_s` is from the first
    commit to the last.
    """
    configure("warning")
    given = read_job(Path(job))
    with _opened(given) as opened:
        encoder = _encoder(given)
        splits: dict[str, list[Delivery]] = {}
        schemas: dict[bytes, RecordSchema] = {}  # A batch has those that are new.
        for batch in _batches(given, opened):
            schemas |= {each.schema_id: each for each in batch.schemas()}
            made = Delivery(batch, encoder.encode(batch, token=1), schemas)
            splits.setdefault(batch.split, []).append(made)
    sink = given.sink(given.sink_config, _context(given))
    sink.open().close()
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(workers), context.SimpleQueue()
    mine = [list(splits.items())[number::workers] for number in range(workers)]
    children = [context.Process(target=_append, args=(sink, of, barrier, found)) for of in mine]
    gc.freeze()  # Or each child would copy what it only looks through.
    for child in children:
        child.start()
    for child in children:
        child.join(_APPEND_SECONDS)
        if child.exitcode:
            raise ProbeFailedError(f"a process that appends ended with {child.exitcode}")
    ends = [found.get() for _ in children]
    return {
        "changes": sum(changes for changes, *_ in ends),
        "cpu_ns": sum(cpu_ns for _, cpu_ns, *_ in ends),
        "wall_s": max(end for *_, end in ends) - min(begin for *_, begin, _ in ends),
    }


def _append(
    sink: Sink,
    splits: Sequence[tuple[str, Sequence[Delivery]]],
    barrier: Barrier,
    found: "SimpleQueue[tuple[int, int, float, float]]",
) -> None:
    """Append deliveries, split by split as they came, in commits of some thousand changes."""
    changes = 0

    def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        nonlocal changes
        assert not failures  # noqa: S101 (else something else was measured)
        changes += len(delivered)

    writers = [sink.open_split(split) for split, _ in splits]
    until_ms = SystemClock().monotonic_ms() + _APPEND_SECONDS * 1_000
    for writer in writers:
        while writer.begin(until_ms) is None:
            pass  # Another process begins; it waits itself.
    barrier.wait(_APPEND_SECONDS)
    begin, begin_ns = time.monotonic(), time.process_time_ns()
    for at in range(0, max(len(each) for _, each in splits), _COMMITTED):
        for writer, (_, deliveries) in zip(writers, splits, strict=True):
            for delivery in deliveries[at : at + _COMMITTED]:
                writer.submit(delivery, settle)
            while not writer.commit({}, until_ms):
                pass
    found.put((changes, time.process_time_ns() - begin_ns, begin, time.monotonic()))


def encode(job: str) -> Measured:
    """Encode what a job reads: in each form, and by fastavro from dictionaries made before."""
    configure("warning")
    given = read_job(Path(job))
    with _opened(given) as opened:
        batches = list(_batches(given, opened))
    measured: dict[str, object] = {}
    forms = {e: Encoding(codec="avro", envelope=e) for e in ("cep44", "flat", "debezium")}
    forms["json"] = Encoding(codec="json", envelope="cep44")
    forms["types"] = Encoding(codec="avro", envelope="cep44", types="cep44")
    for form, wanted in forms.items():
        encoder = Encoder(wanted, given.source.origin)
        changes = sum(len(encoder.encode(batch, token=1)) for batch in batches[:1])  # Plans.
        started = time.process_time_ns()
        changes = sum(len(encoder.encode(batch, token=1)) for batch in batches)
        measured[form] = (time.process_time_ns() - started) / changes
        measured["changes"] = changes
    # The first batch of a busy machine may be an end without changes.
    found = itertools.chain.from_iterable(batch.records() for batch in batches)
    records = list(itertools.islice(found, _DICTIONARIES))
    codec = AvroCodec()
    codec.encode(RecordBatch("", NumberPosition(0), 0, records[:1]))
    started = time.process_time_ns()
    for record in records:
        codec.key(record)
        codec.value(record)
    measured["fastavro"] = (time.process_time_ns() - started) / len(records)
    return measured


def rows(job: str) -> Measured:
    """Encode rows of one kind: see `bench.row_kinds`."""
    configure("warning")
    given = read_job(Path(job))
    with _opened(given) as opened:
        batches = list(_batches(given, opened))
    encoder = Encoder(Encoding(codec="avro", envelope="cep44"), given.source.origin)
    changes = sum(len(encoder.encode(batch, token=1)) for batch in batches)  # Plans.
    started = time.process_time_ns()
    for batch in batches:
        encoder.encode(batch, token=1)
    return {"changes": changes, "cpu_ns": time.process_time_ns() - started}


def _produce(  # noqa: PLR0913, PLR0917 (what produce takes)
    producer: Any,  # noqa: ANN401 (confluent_kafka is imported only where it is timed)
    topic: str,
    encoded: EncodedRecords,
    begin: int,
    headers: list[tuple[str, str | bytes | None]],
    arrived: Callable[..., None],
) -> None:
    end = begin + _POLL_EVERY
    for key, value in zip(encoded.keys[begin:end], encoded.values[begin:end], strict=True):
        while True:
            try:
                producer.produce(topic, value, key, -1, arrived, None, 0, headers)
                break
            except BufferError:
                producer.poll(0.1)


@contextlib.contextmanager
def _opened(job: Job) -> Iterator[Sequence[Reader]]:
    """Open the readers of all splits."""
    source = job.source(job.source_config, _context(job))
    yield [source.open(split, None) for split in source.plan()]
    source.close()


def _batches(job: Job, opened: Sequence[Reader]) -> Iterator[Batch]:
    """Yield what a worker would encode, until every split has twice found nothing.

    Like a worker it asks for ends once for each commit, if it takes so long.
    """
    demand = Demand(
        records_max=job.runtime.batch_records_max,
        bytes_max=job.runtime.batch_bytes_max,
        linger_ms=job.runtime.tick_min_ms,
        commit_due=False,  # Time alone is not a reason to continue.
        position_due=False,
    )
    committed = time.monotonic()
    idle_rounds = 0
    while idle_rounds < _IDLE_ROUNDS:
        idle_rounds += 1
        due = time.monotonic() - committed >= job.runtime.commit_max_seconds
        committed = time.monotonic() if due else committed
        for reader in opened:
            batch = reader.read(replace(demand, position_due=due))
            if isinstance(batch, Batch):
                idle_rounds = 0
                yield batch


def arrow(job: str, table: str = "") -> Measured:
    """See `bench.bulk`."""
    measured: Measured = _bulk().arrow(job, table)
    return measured


def shards(job: str, folder: str) -> Measured:
    """See `bench.bulk`."""
    measured: Measured = _bulk().shards(job, folder)
    return measured


def _bulk() -> ModuleType:
    # What it imports would count as every worker's memory.
    from bench import bulk  # noqa: PLC0415

    return bulk


def _encoder(job: Job) -> Encoder:
    return Encoder(job.sink(job.sink_config, _context(job)).encoding(), job.source.origin)


def _context(job: Job) -> Context:
    log = structlog.stdlib.get_logger()
    return Context(job=job.name, clock=SystemClock(), job_key=_KEY, log=log)


PROBES: Final[Mapping[str, Callable[..., Measured]]] = {
    p.__name__: p
    for p in (
        *(
            bare,
            frame,
            intake,
            identify,
            agreement,
            look_up,
            fold,
            readers,
            network,
            encode,
            run,
            imports,
        ),
        *(rows, produce, deliver, together, arrow, shards, tail),
        *(splits, tables, rings, still),
    )
}


if __name__ == "__main__":
    name, arguments = sys.argv[1:]
    sys.stdout.write(json.dumps(PROBES[name](**json.loads(arguments))))
