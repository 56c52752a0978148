"""The process that a `probing.Probe` starts: it asks plugins; a kept one serves one job.

It reads questions as JSON from standard input, line by line, and writes each answer as JSON to
standard output. It ends after a long time without questions. The plugin's own output is not part of
the answer. The process claims, commits and releases nothing; only `redrive` writes.
"""

import base64
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.connector.control.jobs import bounds_of, job_text, read_job, read_source, table_source
from headrace.connector.control.plugins.lag_watch import LagWatch
from headrace.connector.control.plugins.redriving import LETTERS_MAX
from headrace.connector.foundation.configured import configured
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.foundation.offered import located
from headrace.connector.foundation.references import resolved
from headrace.connector.foundation.sink_stores import confined_paths
from headrace.connector.obs.blame import HINT, PluginBrokenError, described, making
from headrace.connector.obs.logging import configure
from headrace.connector.runtime.making import read_only_context
from headrace.connector.serde import Encoder
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import (
    Batch,
    CheckResult,
    CloseReason,
    ConfigError,
    Demand,
    Encoding,
    HeadraceError,
    Position,
    Record,
    Resplitting,
    RowReading,
    Sink,
    Source,
    Split,
    TableChecks,
    parse_config,
)
from headrace.plugins.discovery import load
from headrace.plugins.records.record import readable

PREVIEW_SECONDS_MAX: Final = 20.0
REDRIVE_SECONDS_MAX: Final = 15.0
KEPT_SECONDS: Final = 60.0  # A kept process ends after this time without a question.
CHANGE_CHARS_MAX: Final = 64 * 1024  # The rest of a change is not shown.

Question = Mapping[str, Any]  # Any: JSON.
Json = Any
Key = tuple[tuple[str, str], ...]
Stand = tuple[Split, Position | None]


def serve() -> None:
    """Answer each line, until one is late. All questions about lag are about one job."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # A plugin's output is not part of an answer.
    sys.stdout = sys.stderr
    configure("error")
    watch: LagWatch | None = None
    while select.select([sys.stdin], [], [], KEPT_SECONDS)[0] and (line := sys.stdin.readline()):
        question = json.loads(line)
        if question["verb"] == "lag":
            watch = watch or _watch(question)
            answer = _answered(watch.look)
        else:
            answer = answer_to(question)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # Does not wait for threads of a plugin or of a library.


def answer_to(question: Question) -> Mapping[str, Json]:
    """Return the `answer`, or an `error`: code, key, message and hint."""
    return _answered(lambda: ANSWERS[question["verb"]](question))


def _answered(look: Callable[[], Json]) -> Mapping[str, Json]:
    try:
        return {"answer": look()}
    except ConfigError as error:
        first, *others = error.problems
        if others:
            return {"error": [error.code, "", error.message, error.hint]}
        return {"error": [error.code, first.key, first.message, first.hint]}
    except HeadraceError as error:
        place = f"{error.place}: " if error.place else ""
        return {"error": [error.code, "", f"{place}{error.message}", error.hint]}
    except Exception as error:  # noqa: BLE001 (a stranger's plugin)
        return {"error": [PluginBrokenError.code, "", described(error), HINT]}


def validate(question: Question) -> Json:
    """Return check, result, message and hint of each finding about a sink."""
    plugin: type[Sink] = load("sinks", question["plugin"])
    options = resolved(question["options"], section="sink", confined=True)
    config: object = parse_config(plugin.config_class, options)
    file = question.get("job_file")
    if file is None and (unknown := list(confined_paths(config))):
        hint = "ask the worker, over HTTP or with --state WORKER.yaml"
        said = "only the file that the job runs with says where this may write"
        return [[key, CheckResult.UNKNOWN.value, said, hint] for key, _ in unknown]
    if file is not None:
        path = Path(file)
        if outside := bounds_of(path, read_job_file(path)).problems(config):
            return [[p.key, CheckResult.FAILED.value, p.message, p.hint] for p in outside]
        os.chdir(path.parent)  # As the job does that runs with this file.
    with making(plugin, "made", config):
        sink = plugin(config, read_only_context("validate", bytes(16)))
    with making(sink, "checked", config):
        findings = sink.check()
    return [[f.check, f.result.value, f.message, f.hint] for f in findings]


def lag(question: Question) -> Json:
    """Return the lag of a job; see `LagWatch.look`."""
    with contextlib.closing(_watch(question)) as watch:
        return watch.look()


def _watch(question: Question) -> LagWatch:
    return LagWatch(Path(question["job_file"]), question["job"])


def locate(question: Question) -> Json:
    """Return the position of each split at a target, and how much it would read again or skip.

    For each split: its name, the new position (null: from the beginning), and for each part its
    partition, its offset before and after, and the bytes and files left before and after.
    """
    with _opened(question) as (source, stands):
        wanted = [stand for stand in stands if question["split"] in (None, stand[0].split_id)]
        found = []
        for split, position in wanted:
            moved = located(source, split, position, question["target"])
            parts = _compared(source, split, position, moved)
            found.append([split.split_id, _encoded(moved), parts])
        return found


def preview(question: Question) -> Json:
    """Return operation, write time in µs and document of the next changes, or of a table's."""
    limit, table = int(question["limit"]), question["table"]
    until = time.monotonic() + PREVIEW_SECONDS_MAX
    with _opened(question) as (source, stands):
        reading = [source.open(split, position) for split, position in stands]
        changes: list[Json] = []
        while reading and len(changes) < limit and time.monotonic() < until:
            for reader in tuple(reading):
                batch = reader.read(Demand(records_max=limit))
                if not isinstance(batch, Batch):
                    reader.close(CloseReason.FINISHED)
                    reading.remove(reader)
                    continue
                changes += [_shown(r) for r in batch.records() if table in ("", r.schema.table)]
        return changes[:limit]


def tables(question: Question) -> Json:
    """Return code, message and hint of each warning about the tables of a new source.

    The job need not have run, nor have a sink: the file alone defines the source.
    """
    path = Path(question["job_file"])
    plugin, config = read_source(path, question["job"], alone=True, cluster=question["cluster"])
    os.chdir(path.parent)  # Paths in the file are relative to it.
    with making(plugin, "made", config):
        source = plugin(config, read_only_context(question["job"], bytes(16)))
    with making(source, "asked about tables", config):
        asked = question["tables"]
        found = source.check_tables(asked) if isinstance(source, TableChecks) else ()
    return [[warning.code, warning.message, warning.hint] for warning in found]


def rows(question: Question) -> Json:
    """Return the schema of a table, and its current rows with `keys`, as changes.

    The schema has the members of a RecordSchema; a change is its value in the envelope `cep44`.
    """
    path = Path(question["job_file"])
    given = table_source(job_text(path, question["job"]), question["table"])
    os.chdir(path.parent)  # Paths in the file are relative to it.
    plugin, config = configured("source", given)
    with making(plugin, "made", config):
        source: Source = plugin(config, read_only_context(question["job"], bytes(16)))
    with making(source, "asked for rows", config):
        batch = RowReading.of(source).rows(question["keys"], question["level"])
    encoded = Encoder(Encoding(codec="avro", envelope="cep44")).encode(batch, token=0)
    (schema,) = batch.schemas()
    shown = [schema.table, schema.text, _text(schema.schema_id), schema.key, schema.value]
    return {"schema": shown, "changes": [_text(bytes(value)) for value in encoded.values]}


def diagnosis(question: Question) -> Json:
    """Return group, check, result, message and hint of each finding of the checks of a job."""
    # Imported here because no other question needs it.
    from headrace.connector.control.health.diagnosing import JOB, diagnose  # noqa: PLC0415

    path = Path(question["job_file"])
    try:
        job = read_job(path, question["job"])
    except ConfigError as error:
        failed = CheckResult.FAILED.value
        return [[JOB, p.key or path.name, failed, p.message, p.hint] for p in error.problems]
    os.chdir(job.directory)
    results = [(each.group, each.finding) for each in diagnose(job)]
    return [[group, f.check, f.result.value, f.message, f.hint] for group, f in results]


def redrive(question: Question) -> Json:
    """Send dead letters of a job again, oldest first; only this question delivers and writes.

    `sent` has number and problem of each, `left` is how many more there are.
    """
    # Imported here because no other question encodes records.
    from headrace.connector.runtime.failures.redrive import Redrive  # noqa: PLC0415

    job = read_job(Path(question["job_file"]), question["job"])
    os.chdir(job.directory)
    with contextlib.closing(job.open_store(create=False)) as store:
        chosen = list(store.losses(question["numbers"] or None))
        until = time.monotonic() + REDRIVE_SECONDS_MAX
        sent: list[tuple[int, str]] = []
        sending = Redrive(job, store).groups(chosen[:LETTERS_MAX], dry=False)
        with contextlib.closing(sending):
            for group in sending:
                sent += group
                if time.monotonic() > until:
                    break
    return {"sent": sent, "left": len(chosen) - len(sent)}


ANSWERS: Final[Mapping[str, Callable[[Question], Json]]] = {
    "diagnosis": diagnosis,
    "lag": lag,
    "locate": locate,
    "preview": preview,
    "redrive": redrive,
    "rows": rows,
    "tables": tables,
    "validate": validate,
}


@contextlib.contextmanager
def _opened(question: Question) -> Iterator[tuple[Source, Sequence[Stand]]]:
    """Open the source of a job read-only; yield it with the position of each of its splits."""
    path, job = Path(question["job_file"]), question["job"]
    plugin, config = read_source(path, job)
    place, _ = state_of(path, job)
    with contextlib.closing(open_notes(place, create=False)) as notes:
        store = notes.store(job)
        job_key, states = store.job_key(), {state.split: state for state in store.states()}
    os.chdir(path.parent)  # Paths in the file are relative to it.
    with making(plugin, "made", config):
        source = plugin(config, read_only_context(job, job_key))
    # A new number of splits takes effect when the job runs.
    if states and isinstance(source, Resplitting):
        source.follow(list(states))
    stands: list[Stand] = []
    for split in source.plan():
        known = states.get(split.split_id)
        encoded = known.position if known else None
        stands.append((split, source.decode_position(encoded) if encoded else None))
    yield source, stands
    source.close()


def _compared(
    source: Source, split: Split, before: Position | None, after: Position | None
) -> list[Json]:
    left_before, left_after = _left(source, split, before), _left(source, split, after)
    was = {_key(p): dict(o) for p, o in before.describe()} if before else {}
    will = {_key(p): dict(o) for p, o in after.describe()} if after else {}
    keys = dict.fromkeys([*was, *will, *left_before, *left_after])
    return [
        [dict(key), was.get(key), will.get(key), left_before.get(key), left_after.get(key)]
        for key in keys
    ]


def _left(source: Source, split: Split, position: Position | None) -> Mapping[Key, Json]:
    left = source.backlog(split, position)
    return {_key(b.partition): [b.size_bytes, b.files] for b in left if not b.problem}


def _key(partition: Mapping[str, str]) -> Key:
    return tuple(partition.items())


def _encoded(position: Position | None) -> Json:
    if position is None:
        return None
    encoded = position.encode()
    chunks = {name: _text(content) for name, content in encoded.chunks.items()}
    return [_text(encoded.head), chunks]


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _shown(record: Record) -> Json:
    document = json.dumps(record.document(), default=readable, ensure_ascii=False)
    if len(document) > CHANGE_CHARS_MAX:
        document = f"{document[:CHANGE_CHARS_MAX]}…"
    return [record.operation.value, record.timestamp_us, document]
