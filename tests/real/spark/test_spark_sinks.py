"""Sinks in tasks of Spark: the suite that every sink must pass, in the processes of executors."""

import os
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from headrace.plugins.testing import SinkSuite
from helpers.settings.native_modules import ROOT

pytestmark = pytest.mark.real

SUITES = (
    "tests/sinks/files/test_files.py::TestFileSink",
    "tests/sinks/kafka/test_sink.py::TestKafkaSink",
)


def test_the_suite_of_sinks(spark: SparkSession) -> None:
    """Each sink passes each case in a process that Spark made for its tasks."""
    root = str(ROOT)

    def passed(suite: str) -> tuple[Sequence[str], str]:
        found, failed = [], []

        class Noted:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.when == "call" and report.passed:
                    found.append(report.nodeid.rpartition("::")[2])
                if report.failed:
                    failed.append(str(report.longrepr))

        os.chdir(root)
        pytest.main(["-q", "-p", "no:cacheprovider", suite], plugins=[Noted()])
        return found, "\n".join(failed)

    results = spark.sparkContext.parallelize(SUITES, len(SUITES)).map(passed).collect()
    cases = {name for name in vars(SinkSuite) if name.startswith("test_")}
    for suite, (found, failed) in zip(SUITES, results, strict=True):
        assert not failed, suite
        assert cases <= {name.partition("[")[0] for name in found}, suite
