"""What a change costs on its way into a history, and what queries of it cost: `make bench-history`.

Three copies of each mutation of 13 columns, from directories: a whole worker in a process of its
own, less the same on empty logs, beside the same worker with a null sink. Then the sink alone in
two processes, which write into one file, or into several. Then queries of the file that was made,
and of one in which a single row has many versions.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.errors import ProbeFailedError
from bench.figures import MD5_NS, Figure, md5_ns
from bench.machine import machine_facts
from bench.measure import Jobs, probe
from bench.recordings import Recording, prepare
from bench.reporting import RESULTS, keep, status_of, table
from headrace import history
from headrace.connector.history.config import SCOPES
from headrace.sources.cassandra.schema.ddl import parse_schema

RUNS: Final = 3
TIMES: Final = 2
VERSIONS: Final = 10_000
PAGE: Final = 100
FILES: Final = 4  # Of the history that several workers write.
WORKERS: Final = 2  # Which write at once.
IN_TABLES: Final = 20_000  # Mutations of each pass, where a node keeps the history.
_NS_PER_US: Final = 1_000
_MS_PER_SECOND: Final = 1_000
_INCLUDE: Final = {"change": "change", "all images": ",".join(SCOPES)}
_GOALS_US: Final = {"change": 6.6, "all images": 12.0}  # 150,000 changes a second, without images.
Sample = Mapping[str, Any]  # Any: what a probe measured, in JSON.


def measured(
    folder: Path, recording: Recording, *, runs: int
) -> Iterator[tuple[str, Mapping[str, Sample], Path]]:
    """Measure each way *runs* times, one after another; yield the file that was made, too."""
    (of_table,) = parse_schema(recording.schema.read_text()).tables.values()
    folder.mkdir()
    jobs = Jobs(folder)
    for run in range(runs):
        for way, include in _INCLUDE.items():
            file = folder.parent / f"{way}-{run}.db"
            sink = {"plugin": "history", "table": of_table.qualified, "include": include}
            sink |= {"seed": "empty", "path": str(file)}
            empty = sink | {"path": str(file.with_suffix(".empty"))}
            found = {
                "run": jobs.probe("run", job=jobs.write(recording, recording.nodes, sink)),
                "start": jobs.probe("run", job=jobs.write(recording, recording.empty_nodes, empty)),
                "null": jobs.probe(
                    "run", job=jobs.write(recording, recording.nodes, {"plugin": "null"})
                ),
            }
            if way == "all images":
                found |= _images_read(jobs, file, recording)
            for name, sample in found.items():
                sample.pop("modules", None)
                if not name.endswith("start") and sample["changes"] != recording.mutations:
                    raise ProbeFailedError(f"{way}: {sample['changes']} of {recording.mutations}")
            yield way, found, file


def together(
    folder: Path, recording: Recording, *, runs: int, files: int
) -> Mapping[int, Sequence[Sample]]:
    """Measure workers that append all images at once, into one file and into *files*, in turns."""
    (of_table,) = parse_schema(recording.schema.read_text()).tables.values()
    folder.mkdir()
    jobs = Jobs(folder)
    found: dict[int, list[Sample]] = {1: [], files: []}
    for run in range(runs):
        for count, samples in found.items():
            sink = {"plugin": "history", "table": of_table.qualified, "seed": "empty"}
            place = folder.parent / f"in-{count}-{run}"
            sink |= {"include": ",".join(SCOPES), "path": str(place / "history.db")}
            job = jobs.write(recording, recording.nodes, sink | {"files": str(count)})
            samples.append(jobs.probe("together", job=job, workers=WORKERS))
            shutil.rmtree(place)
            if samples[-1]["changes"] != recording.mutations:
                what = f"{count} files: {samples[-1]['changes']} of {recording.mutations}"
                raise ProbeFailedError(what)
    return found


def together_figures(found: Mapping[int, Sequence[Sample]]) -> list[Figure]:
    """Return the CPU of a change in each number of files, beside changes a second."""
    return [
        Figure(
            f"{WORKERS} processes -> a history in {count} file{'s' * (count > 1)}, all images",
            "µs",
            [s["cpu_ns"] / s["changes"] / _NS_PER_US for s in samples],
            {"changes/s": max(s["changes"] / s["wall_s"] for s in samples)},
        )
        for count, samples in found.items()
    ]


def _images_read(jobs: Jobs, file: Path, recording: Recording) -> Mapping[str, dict[str, Any]]:
    """Measure a job that reads a history with its images, and one that finds nothing new."""
    (of_table,) = parse_schema(recording.schema.read_text()).tables.values()
    empty = file.with_suffix(".empty")
    probes = {}
    for name, path in (("images", file), ("images start", empty)):
        source = {"plugin": "history", "path": str(path), "tables": of_table.qualified}
        job = jobs.write_job(source, {"plugin": "null"})
        probes[name] = jobs.probe("run", job=job)
    return probes


def figures_of(samples: Mapping[str, Sequence[tuple[Mapping[str, Sample], int]]]) -> list[Figure]:
    """Return the CPU of a change each way, beside its bytes in the file and changes a second."""
    made = []
    for way, found in samples.items():
        runs = [sample for sample, _ in found]
        times = [s["run"]["wall_s"] - s["start"]["wall_s"] for s in runs]
        changes = runs[0]["run"]["changes"]
        bounds = {
            "null sink": min(_per_change_us(s["null"], s["start"]) for s in runs),
            "bytes": found[0][1] / changes,
            "changes/s": changes / min(times),
        }
        cpu = [_per_change_us(s["run"], s["start"]) for s in runs]
        title = f"three copies of 13 columns -> history, {way}"
        made.append(Figure(title, "µs", cpu, bounds, goal=_GOALS_US[way]))
        if "images" in runs[0]:
            cpu = [_per_change_us(s["images"], s["images start"]) for s in runs]
            title = "a history -> null sink, both images of each change"
            made.append(Figure(title, "µs", cpu, {"changes": changes}))
    return made


def _per_change_us(run: Sample, start: Sample) -> float:
    return float(run["cpu_ns"] - start["cpu_ns"]) / int(run["changes"]) / _NS_PER_US


def queries_of(file: Path, versions: Path, *, runs: int) -> list[Figure]:
    """Return what a first page of *file* costs, and what the versions of one row."""
    with history.connect(file) as opened, history.connect(versions) as one_row:
        count = sum(1 for _ in opened.select(0))
        first = next(iter(opened.select(0, limit=1)))
        middle_ms = first.time_ms
        page = _times_ms(
            lambda: list(opened.select(middle_ms, include=SCOPES, limit=PAGE)), runs, PAGE
        )
        whole = _times_ms(lambda: list(one_row.select(0, include=("pre", "post"))), runs, VERSIONS)
        plain = _times_ms(lambda: list(one_row.select(0)), runs, VERSIONS)
    return [
        Figure(f"a page of {PAGE} with all images", "ms", page, {"changes": count}, goal=50.0),
        Figure(
            f"{VERSIONS} versions of a row, before and after",
            "ms",
            whole,
            {"changes alone": min(plain)},
            goal=100.0,
        ),
    ]


def _times_ms(read: Callable[[], list[Any]], runs: int, expected: int) -> list[float]:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        found = read()
        times.append((time.perf_counter() - begin) * _MS_PER_SECOND)
        if len(found) != expected:
            raise ProbeFailedError(f"{len(found)} of {expected} changes")
    return times


def one_row(folder: Path) -> Path:
    """Return a history in which one row has many versions."""
    from headrace.plugins.testing.doubles import DrivenClock  # noqa: PLC0415 (needs pytest)
    from helpers.histories.kept import FOREVER_MS, Kept, beside, settled  # noqa: PLC0415 (tests')
    from helpers.histories.rows import TABLE, change, delivery  # noqa: PLC0415 (tests')

    kept = Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty"))
    writer = kept.writer()
    for number in range(VERSIONS):
        writer.submit(delivery(change(written_us=number, note=str(number))), settled)
    if not writer.commit({}, FOREVER_MS):
        raise ProbeFailedError("the versions were not committed")
    writer.close()
    return Path(kept.sink.config.place)


def _beside_tables(folder: Path, recording: Recording, given: argparse.Namespace) -> int:
    from bench.history_tables import measured as measured_tables  # noqa: PLC0415 (with Java only)

    figures, raw = measured_tables(folder, recording, runs=given.runs)
    bare = [probe("bare", log=str(recording.log)) for _ in range(given.runs)]
    md5 = min(md5_ns(each) for each in bare)
    machine = Figure("this machine: MD5 of 323 bytes", "ns", [md5], {"goals were set at": MD5_NS})
    sys.stdout.write(table([machine, *figures]) + "\n")
    keep(given.results, "history-tables", {"machine": machine_facts(), **raw})
    return 0


def main() -> int:
    """Return 1 if a goal is missed, with --goals."""
    parser = argparse.ArgumentParser(prog="bench.history", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="how often each way is measured")
    parser.add_argument("--times", type=int, default=TIMES, help="how often the recording is read")
    parser.add_argument(
        "--store", choices=("file", "cassandra"), default="file", help="of histories"
    )
    parser.add_argument(
        "--files", type=int, default=FILES, help="of the history that workers write together"
    )
    parser.add_argument("--goals", action="store_true", help="fail for goals that are missed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    samples: dict[str, list[tuple[Mapping[str, Sample], int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = prepare(
            "wide",
            folder / "wide",
            replicas=3,
            consistency="QUORUM",
            mutations_max=IN_TABLES if given.store == "cassandra" else None,
            times=given.times,
        )
        if given.store == "cassandra":
            return _beside_tables(folder, recording, given)
        for way, found, file in measured(folder / "jobs", recording, runs=given.runs):
            samples[way].append((found, file.stat().st_size))
        shared = together(folder / "together", recording, runs=given.runs, files=given.files)
        queries = queries_of(file, one_row(folder), runs=given.runs)
        bare = [probe("bare", log=str(recording.log)) for _ in range(given.runs)]
    md5 = min(md5_ns(each) for each in bare)
    machine = Figure("this machine: MD5 of 323 bytes", "ns", [md5], {"goals were set at": MD5_NS})
    figures = [machine, *figures_of(samples), *together_figures(shared), *queries]
    sys.stdout.write(table(figures) + "\n")
    raw = {
        "machine": machine_facts(),
        "samples": samples,
        "together": shared,
        "queries": [q.runs for q in queries],
    }
    keep(given.results, "history", raw)
    return status_of(figures, goals=given.goals)


if __name__ == "__main__":
    sys.exit(main())
