"""Whatever a generator makes of our description, the server answers as described."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from helpers.servers.rest_server import RestWorker

EXAMPLES = 8
CHECKS: Any = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]


def test_generated_requests(served: RestWorker) -> None:
    """Good and bad requests of every operation get a described answer, never a failure of ours."""
    base = f"http://127.0.0.1:{served.client.port}"
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    operations = [made for result in schema.get_all_operations() if (made := result.ok())]  # type: ignore[union-attr]
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def asked(case: Any) -> None:  # noqa: ANN401 (a case has no public type)
            case.call_and_validate(checks=CHECKS)

        asked()

    assert 20 < len(operations)
