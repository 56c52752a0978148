"""The common predicates: select the records of a transform."""

import re
from dataclasses import dataclass

from headrace.connector.serde.transforms.names import check_headers
from headrace.plugins import ConfigError, Operation, Predicate, Problem, Record, option
from headrace.plugins.errors import meant


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConfig:
    """Options of predicates that match a name."""

    pattern: str = option("The pattern that the whole name must match.")

    def __post_init__(self) -> None:
        """Check the expression."""
        check_pattern("pattern", self.pattern)


class TopicNameMatches(Predicate):
    """Selects records whose topic matches a pattern."""

    config_class = PatternConfig
    config: PatternConfig

    def of_table(self, table: str, topic: str) -> bool:
        """Match the table's topic."""
        del table
        return re.fullmatch(self.config.pattern, topic) is not None

    def test(self, record: Record) -> bool:
        """Match the topic."""
        return re.fullmatch(self.config.pattern, record.topic or "") is not None


class TableMatches(Predicate):
    """Selects records whose `keyspace.table` matches a pattern."""

    config_class = PatternConfig
    config: PatternConfig

    def of_table(self, table: str, topic: str) -> bool:
        """Match the table."""
        del topic
        return re.fullmatch(self.config.pattern, table) is not None

    def test(self, record: Record) -> bool:
        """Match the table."""
        return re.fullmatch(self.config.pattern, record.schema.table) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HasHeaderKeyConfig:
    """Options of HasHeaderKey."""

    name: str = option("The header.")

    def __post_init__(self) -> None:
        """Check that records have such headers."""
        check_headers("name", (self.name,))


class HasHeaderKey(Predicate):
    """Selects records that have a header of their own, by name."""

    config_class = HasHeaderKeyConfig
    config: HasHeaderKeyConfig

    def test(self, record: Record) -> bool:
        """Look for the header."""
        return any(name == self.config.name for name, _ in record.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationIsConfig:
    """Options of OperationIs."""

    operations: tuple[str, ...] = option("INSERT, UPDATE, DELETE, DELETE_RANGE, DELETE_PARTITION.")

    def __post_init__(self) -> None:
        """Check that these operations exist."""
        known = [operation.value for operation in Operation]
        for each in self.operations or ("",):
            if each not in known:
                message = f"expected some of {', '.join(known)}, found {each!r}"
                raise ConfigError([Problem("operations", message, meant(each.upper(), known))])


class OperationIs(Predicate):
    """Selects changes with one of some operations."""

    config_class = OperationIsConfig
    config: OperationIsConfig

    def test(self, record: Record) -> bool:
        """Compare the operation."""
        return record.operation.value in self.config.operations


def check_pattern(key: str, pattern: str) -> None:
    """Raise ConfigError if *pattern*, from the option *key*, is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError([Problem(key, f"is not a regular expression: {error}")]) from error
