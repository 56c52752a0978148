"""What several commands take: a job, and the engine that runs it."""

import argparse
from pathlib import Path

import pytest

from headrace.connector.commands.job_parser import add_engine, engine_arguments
from headrace.connector.commands.run import run_main
from headrace.connector.commands.worker import worker_main
from headrace.plugins import ConfigError


@pytest.mark.parametrize("option", [("--master", "local[2]"), ("--batch-bytes", "5")])
def test_an_option_of_spark_without_spark(tmp_path: Path, option: tuple[str, str]) -> None:
    """An option that only Spark has is refused where Spark runs no job, before anything starts.

    A worker takes it for the sources that are to run there.
    """
    path = tmp_path / "job.yaml"
    with pytest.raises(ConfigError, match=f"{option[0]}: is for Spark, found --engine worker"):
        run_main([str(path), *option])
    with pytest.raises(ConfigError, match="cannot be read"):
        worker_main([str(path), *option])
    assert [] == [*tmp_path.iterdir()]


def test_what_a_worker_passes_on() -> None:
    """Its processes get the engine, the master and the size of batches that it was given."""
    parser = argparse.ArgumentParser()
    add_engine(parser)
    for given in (
        ["--engine", "worker"],
        ["--engine", "spark", "--master", "m", "--batch-bytes", "9"],
    ):
        assert given == [*engine_arguments(parser.parse_args(given))]
