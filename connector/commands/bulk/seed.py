"""`headrace seed`: writes the rows that a table had before its history into it, as states of rows.

It reads them as a backfill does, while live changes flow. A run that was killed continues when the
command is repeated.
"""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace.connector.commands.bulk.replay import summary
from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.jobs import JobText, job_text, read_job, table_source
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.configured import configured
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.history.config import SNAPSHOT, HistoryConfig
from headrace.connector.history.errors import HistorySeedError
from headrace.connector.history.seeding import begin_seed, end_seed, seed_now
from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.store.places import opened
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.engine import NO_SPARK, engine
from headrace.connector.replay.execution import execute
from headrace.connector.replay.options import SeedOptions
from headrace.connector.replay.planning import planned
from headrace.connector.replay.run_metrics import RunMeasures, telling
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, inside
from headrace.connector.stores.asked_runs import not_followed
from headrace.connector.stores.job import notes_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, Problem

_KIND: Final = "seed"


def main(given: SeedOptions) -> int:
    """Read the ranges of the table that are not yet done; return the exit status.

    Raises:
        ConfigError: the history does not exist, or its table cannot be read.
        HistorySeedError: the history must not be seeded, or cannot be seeded yet.
        ShardFailedError: a range of the table could not be read; the others are done.

    """
    path = Path(given.job)
    text = _text_of(path, given)
    _, config = configured("sink", text.sink, text.bounds)
    if not isinstance(config, HistoryConfig):
        hint = "name the history: headrace seed FILE HISTORY"
        raise ConfigError([Problem("sink", f"the sink of job {text.name} is not a history", hint)])
    if config.seed != SNAPSHOT:
        hint = f"CREATE CDC … WITH seed = '{SNAPSHOT}'"
        what = f"expected {SNAPSHOT}, found {config.seed}: no rows are to be read"
        raise ConfigError([Problem("seed", what, hint)])
    with inside(str(text.directory)), closing(opened(config.place, SystemClock())) as file:
        seed = seed_now(file)
        if seed is None or seed.done is None:
            _check_followed(path, text, file)
            _read(text, config, file, given)
            end_seed(file, SystemClock().wall_ms())
            seed = seed_now(file)
    if seed is None:
        raise _keeps_no_images(config.place)
    sys.stdout.write(f"all rows of {config.table} are known: {seed.rows} were read\n")
    return 0


def _text_of(path: Path, given: SeedOptions) -> JobText:
    """Return the job that feeds a history; without a history, the job that is named, or the file's.

    Raises:
        ConfigError: no source writes into the history.

    """
    history = given.history
    if history is None:
        return job_text(path, given.job_name)
    with closing(open_notes(notes_of(path, read_job_file(path)), create=False)) as notes:
        routes = Catalogue(notes).board.routes()
        jobs = sorted({route.job for route in routes if route.sink == history})
        if not jobs:
            names = ", ".join(sorted({route.sink for route in routes})) or "none"
            what = f"no source writes into {history[:48]!r}"
            raise ConfigError([Problem("history", what, f"there are: {names}")])
        return job_text(path, jobs[0], notes=notes)


def _check_followed(path: Path, text: JobText, file: HistoryStore) -> None:
    """Raise until the logs are followed: a change between snapshot and logs would be in neither."""
    epochs = file.epochs()
    if not epochs or epochs[-1].states_since_us is None:
        raise _keeps_no_images(file.place)
    with closing(read_job(path, text.name).open_store(create=False)) as store:
        missing = not_followed(store)
    if missing is None or missing:
        count = "all" if missing is None else len(missing)
        raise HistorySeedError(
            f"job {text.name} does not follow the logs yet: {count} of its splits have no position",
            place=file.place,
            hint="run `headrace worker`, and seed again a moment later",
        )


def _keeps_no_images(place: str) -> HistorySeedError:
    hint = "ALTER CDC … INCLUDE (CHANGE, POST)"
    return HistorySeedError("keeps no images: there is nothing to seed", place=place, hint=hint)


def _read(text: JobText, config: HistoryConfig, file: HistoryStore, given: SeedOptions) -> None:
    """Execute the run that seeds the history, or its remaining shards."""
    made = Target.of_job(text)
    target = replace(made, rate=given.rate)
    with closing(RunTable(text.notes)) as runs:
        with runs.executing(f"{_KIND}-{file.place}"):  # Two that plan at once would both read it.
            seed = seed_now(file)
            known = [run for run in runs.runs() if seed is not None and run.run == seed.run]
            if known:
                run = replace(known[0], target=target)
            else:
                source = table_source(text, config.table)
                spec = SourceSpec(given=source, directory=str(text.directory), job=text.name)
                plan = planned(spec, Selection(), shards=given.shards)
                facts = {"table": config.table, "shards": len(plan.shards)}
                run = Run.new(_KIND, target, facts)
                runs.add(run, plan.shards)
                begin_seed(file, run.run, run.made_ms * 1_000)
        measures = RunMeasures(run.run)
        with engine(NO_SPARK) as used, telling(given, text, measures):
            try:
                execute(runs, run, used.perform, measures, width=used.width)
            finally:
                sys.stdout.write(summary(run, runs.shards(run.run)))
