"""The conformance suites: what every source and every sink must do, as pytest classes.

Subclass `SourceSuite` or `SinkSuite`, give it a fixture `driver`, and its tests are yours.
`doubles` has stand-ins for tests of your own. Needs pytest, so nothing else imports this package.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.sink_suite", f"{__name__}.source_suite")

from headrace.plugins.testing.sink_suite import (  # noqa: E402 (after the rewrite is registered)
    SinkDriver,
    SinkSuite,
)
from headrace.plugins.testing.source_suite import (  # noqa: E402 (after the rewrite is registered)
    SourceDriver,
    SourceSuite,
)

__all__ = ["SinkDriver", "SinkSuite", "SourceDriver", "SourceSuite"]
