"""Cassandra's answers about roles are understood, and names in the queries are quoted."""

from collections.abc import Mapping, Sequence

import pytest

from headrace.connector.control.access.authority import CassandraAuthority
from headrace.connector.language.statements import TableName


class Answers:
    """A connection with the recorded answers of a Cassandra that has authentication."""

    cluster = "test"

    def __init__(self) -> None:
        """Have a superuser, a role that inherits CDC, and a role without permissions."""
        self.asked: list[tuple[str, ...]] = []
        self.roles = {
            '"root"': [{"role": "root", "super": True, "login": True, "options": {}}],
            '"bob"': [
                {"role": "bob", "super": False, "login": True, "options": {}},
                {"role": "cdc_admins", "super": False, "login": False, "options": {}},
            ],
            '"alice"': [{"role": "alice", "super": False, "login": True, "options": {}}],
        }
        self.granted = {
            "cdc_admins": [{"resource": "cluster", "permissions": {"CDC", "SNAPSHOT"}}],
            "alice": [{"resource": "data/shop", "permissions": {"CDC"}}],
        }

    def rows(self, text: str, *values: str) -> Sequence[Mapping[str, object]]:
        """Return the recorded rows."""
        self.asked.append((text, *values))
        if text.startswith("LIST ROLES OF "):
            return self.roles[text.removeprefix("LIST ROLES OF ")]
        if values:
            return self.granted.get(values[0], [])
        return [{"permission": "SELECT"}] if '"bob"' in text else []


@pytest.mark.parametrize(
    ("role", "is_superuser", "has_cdc", "may_select"),
    [("root", True, False, False), ("bob", False, True, True), ("alice", False, False, False)],
)
def test_roles(role: str, *, is_superuser: bool, has_cdc: bool, may_select: bool) -> None:
    """Superusers, permissions on the cluster, inherited or not, and SELECT on a table are read."""
    authority = CassandraAuthority(Answers())

    assert (is_superuser, has_cdc, may_select, "test") == (
        authority.is_superuser(role),
        authority.has_cdc(role),
        authority.may_select(role, TableName("shop", "orders")),
        authority.cluster,
    )


def test_names_are_quoted() -> None:
    """A role or a table with quotes in its name is quoted."""
    answers = Answers()
    answers.roles['"a""; DROP ROLE x; --"'] = []
    authority = CassandraAuthority(answers)
    authority.is_superuser('a"; DROP ROLE x; --')
    authority.may_select('a"b', TableName("Shop", 'o"rders'))

    assert [
        ('LIST ROLES OF "a""; DROP ROLE x; --"',),
        ('LIST SELECT PERMISSION ON TABLE "Shop"."o""rders" OF "a""b"',),
    ] == answers.asked
