"""What access lists come to, and whose they are."""

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget them.
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headrace.plugins import CheckResult
from headrace.sinks.kafka.diagnosis.rights import user_of, verdict

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ALL, READ, WRITE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE
Line = tuple[str, AclOperation, AclPermissionType]


@pytest.mark.parametrize(
    ("lines", "user", "result"),
    [
        ([("User:a", WRITE, ALLOW)], "User:a", CheckResult.PASSED),
        ([("User:a", ALL, ALLOW)], "User:a", CheckResult.PASSED),
        ([("User:*", WRITE, ALLOW)], "User:a", CheckResult.PASSED),
        ([("User:b", WRITE, ALLOW)], "User:a", CheckResult.FAILED),
        ([("User:a", READ, ALLOW)], "User:a", CheckResult.FAILED),
        ([("User:a", WRITE, ALLOW), ("User:*", ALL, DENY)], "User:a", CheckResult.FAILED),
        ([], "User:a", CheckResult.WARNED),
        ([("User:a", WRITE, ALLOW)], None, CheckResult.UNKNOWN),
    ],
)
def test_what_lists_come_to(lines: list[Line], user: str | None, result: CheckResult) -> None:
    """A user may do what a list allows it, by its own name or all, and none forbids."""
    kind, pattern = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
    lists = [AclBinding(kind, "headrace-", pattern, who, "*", op, how) for who, op, how in lines]

    assert result is verdict(lists, user, WRITE)[0]


def test_whose_lists_they_are() -> None:
    """A user that logs in by a name is known here; one with a certificate is not."""
    assert "User:a" == user_of({"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a"})
    assert "User:a" == user_of({"sasl.mechanisms": "PLAIN", "sasl.username": "a"})
    assert user_of({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "a"}) is None
    assert user_of({"ssl.certificate.location": "/c.pem"}) is None
