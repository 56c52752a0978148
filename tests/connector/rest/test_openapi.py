"""What describes the HTTP server fits it: the page, and the OpenAPI description."""

import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from headrace.connector.control.services import CdcService
from headrace.connector.rest.config import RestConfig
from headrace.plugins import declared_options
from helpers.servers.rest_server import RestWorker
from helpers.settings.native_modules import ROOT

PAGE = (Path(ROOT) / "docs" / "rest.md").read_text()
EXAMPLES = 8
CHECKS: Any = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]


@pytest.mark.parametrize("config_class", [RestConfig, CdcService])
def test_options(config_class: type) -> None:
    """Every option is in a table, and so is its default."""
    options = declared_options(config_class)
    assert options
    for key, (field, _) in options.items():
        line = next((li for li in PAGE.splitlines() if li.startswith("|") and f"`{key}`" in li), "")
        assert line, key
        if isinstance(field.default, int | str) and field.default is not None:
            assert f"`{str(field.default).lower()}`" in line.lower(), key


def test_paths(served: RestWorker) -> None:
    """Every path of our own, as its description has it, is on the page."""
    paths = served.client("GET", "/openapi.json").json["paths"]
    assert paths
    for path in paths:
        last = re.sub(r"\{\w+\}", "", path).rstrip("/").rpartition("/")[2]
        assert last in PAGE, path


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
