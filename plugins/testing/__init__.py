"""The conformance suites: what every source, sink and store must do, as pytest classes.

Subclass one of them, give it a fixture `driver`, and its tests are yours.
`doubles` has stand-ins for tests of your own. Needs pytest, so nothing else imports this package.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{suite}" for suite in ("sink_suite", "source_suite", "store_suite"))
)

from headrace.plugins.testing.sink_suite import (  # noqa: E402 (after the rewrite is registered)
    SinkDriver,
    SinkSuite,
)
from headrace.plugins.testing.source_suite import (  # noqa: E402 (after the rewrite is registered)
    SourceDriver,
    SourceSuite,
)
from headrace.plugins.testing.store_suite import (  # noqa: E402 (after the rewrite is registered)
    StoreDriver,
    StoreSuite,
)

__all__ = [
    "SinkDriver",
    "SinkSuite",
    "SourceDriver",
    "SourceSuite",
    "StoreDriver",
    "StoreSuite",
]
