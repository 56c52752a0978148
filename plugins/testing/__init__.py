"""The conformance suites: requirements of every plugin of a kind, as pytest classes.

Subclass one of them, and give it a fixture `driver`. A sink with exactly-once delivery has
`TransactionalSuite`, too; a source has the suite of each capability that it offers. `KeyValueSuite`
is for the backends of stores. `doubles` has stand-ins for your own tests. Needs pytest, so no other
module imports this package.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{suite}_suite" for suite in ("key_value", "sink", "source", "transactional")),
    f"{__name__}.capability_suites",
    f"{__name__}.record_suites",
)

from headrace.plugins.testing.capability_suites import (  # noqa: E402 (as below)
    BulkReadingSuite,
    JobTracesSuite,
    LocalitySuite,
    LogArchiveSuite,
    LogFramingSuite,
    LogSearchSuite,
    LogSpacesSuite,
    MicroBatchesSuite,
    PartialReadingSuite,
    RelocationSuite,
    ResplittingSuite,
    SidecarServiceSuite,
    TableChecksSuite,
    TablesSuite,
    TokenRangesSuite,
    TypedColumnsSuite,
)
from headrace.plugins.testing.key_value_suite import KeyValueSuite  # noqa: E402 (after the rewrite)
from headrace.plugins.testing.record_suites import CodecSuite, TransformSuite  # noqa: E402 (as above)
from headrace.plugins.testing.sink_suite import SinkDriver, SinkSuite  # noqa: E402 (after the rewrite is registered)
from headrace.plugins.testing.source_suite import SourceDriver, SourceSuite  # noqa: E402 (after the rewrite is registered)
from headrace.plugins.testing.transactional_suite import TransactionalDriver, TransactionalSuite  # noqa: E402 (as above)

__all__ = [
    "BulkReadingSuite",
    "CodecSuite",
    "JobTracesSuite",
    "KeyValueSuite",
    "LocalitySuite",
    "LogArchiveSuite",
    "LogFramingSuite",
    "LogSearchSuite",
    "LogSpacesSuite",
    "MicroBatchesSuite",
    "PartialReadingSuite",
    "RelocationSuite",
    "ResplittingSuite",
    "SidecarServiceSuite",
    "SinkDriver",
    "SinkSuite",
    "SourceDriver",
    "SourceSuite",
    "TableChecksSuite",
    "TablesSuite",
    "TokenRangesSuite",
    "TransactionalDriver",
    "TransactionalSuite",
    "TransformSuite",
    "TypedColumnsSuite",
]
