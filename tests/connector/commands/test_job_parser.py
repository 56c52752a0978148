"""What several commands take: a job, and the engine that runs it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.connector.commands.run import run_main
from headrace.connector.commands.worker import worker_main
from headrace.plugins import ConfigError


@pytest.mark.parametrize("option", [("--master", "local[2]"), ("--batch-bytes", "5")])
@pytest.mark.parametrize("command", [run_main, worker_main])
def test_an_option_of_spark_without_spark(
    tmp_path: Path, command: Callable[[Sequence[str]], int], option: tuple[str, str]
) -> None:
    """An option that only Spark has is refused where Spark runs no job, before anything starts."""
    with pytest.raises(ConfigError, match=f"{option[0]}: is for Spark, found --engine worker"):
        command([str(tmp_path / "job.yaml"), *option])
    assert [] == [*tmp_path.iterdir()]
