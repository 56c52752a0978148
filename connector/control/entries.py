"""Sinks and sources as the catalogue keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.shell.parser import parse_statement
from headrace.connector.shell.statements import CreateSource, TableName

START_KEY: Final = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEntry:
    """A sink; `statement` is the canonical text that makes it again."""

    name: str
    plugin: str
    statement: str
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source; `name` is its connector's, by default `cdc.shop.orders`.

    `job` is empty where nobody named one; the board knows which job runs it then.
    """

    name: str
    sink: str
    job: str
    statement: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def start(self) -> str:
        """Return where it begins, if that was said."""
        return self.config.get(START_KEY, "")

    @property
    def word(self) -> str:
        """Return what stands after DATA_SOURCE."""
        return self._made().word

    @property
    def table(self) -> TableName:
        """Return the table."""
        return self._made().table

    def _made(self) -> CreateSource:
        statement = parse_statement(self.statement)
        assert isinstance(statement, CreateSource)  # noqa: S101 (the formatter wrote it)
        return statement
