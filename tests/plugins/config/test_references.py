"""A reference is resolved by the provider it names; a secret itself is refused."""

import pytest

from headrace.plugins import ConfigError, SecretUnavailableError, is_reference, resolve


def test_a_provider_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before the colon names it; a name that no one has is not a reference."""
    monkeypatch.setenv("CANARY", "secret")

    assert "secret" == resolve("${env:CANARY}", place="--key")
    assert not is_reference("${nobody:CANARY}")


def test_what_cannot_be_resolved() -> None:
    """The message has the reference and the option; a secret in its place is not repeated."""
    with pytest.raises(SecretUnavailableError, match=r"--key: \$\{env:NONE_SUCH\} cannot") as gone:
        resolve("${env:NONE_SUCH}", place="--key")
    with pytest.raises(ConfigError) as literal:
        resolve("canary", place="--key")

    assert 3 == gone.value.exit_status
    assert "canary" not in str(literal.value)
    assert "refer to it: '${env:HEADRACE_SECRET_KEY}' or" in str(literal.value)
