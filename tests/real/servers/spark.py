"""A home of Spark's for tests, from which Spark starts with half of the CPU.

As pyspark is installed, each of Spark's Python processes compiles pyspark again, from an archive
that keeps no bytecode, and each Java reads its classes from hundreds of jars. This home is without
that archive, so that Python finds what is installed, and Java has its classes in one file.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

from helpers.settings.native_modules import ROOT
from real.servers.java import archived
from real.servers.maven import ServerError, alone

INSTALLED: Final = Path(pyspark.__file__).parent
HOME: Final = ROOT / "build" / f"spark-{pyspark.__version__}"
# What is archived are the classes that a stream over a recorded ring needs.
_PROGRAM: Final = """
import sys
from pathlib import Path
from headrace.connector.commands.cli import main
from real.spark.spark_jobs import stream_job
job = str(stream_job(Path({folder!r}), "archived"))
sys.exit(main(["run", job, "--engine", "spark", "--until-idle", "--master", "local[2]"]))
"""
_START_SECONDS_MAX: Final = 300


@cache
def quick_start() -> Mapping[str, str]:
    """Return the variables with which Spark uses this home; make it, where it does not exist."""
    with alone("spark-home.lock"):
        HOME.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            link = HOME / name
            if not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(INSTALLED / name)
    option = shlex.quote(archived(HOME.name, _start, HOME))
    return {
        "SPARK_HOME": str(HOME),
        "SPARK_SUBMIT_OPTS": option,
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 {option}",
        # Of executors only the driver's settings decide.
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.executor.extraJavaOptions={option} pyspark-shell",
    }


def _start(folder: Path, option: str) -> None:
    """Start Spark, run a stream in it, and end it, with an option of Java's."""
    folder.mkdir()
    variables = {
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")])
        ),
        "SPARK_HOME": str(HOME),
        "SPARK_SUBMIT_OPTS": shlex.quote(option),
    }
    done = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", _PROGRAM.format(folder=str(folder))],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=_START_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"Spark does not start:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
