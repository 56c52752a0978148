"""Errors of a statement that parses but cannot be executed. Their exit status is 2.

Each error names the wrong part of the statement by a key: `sink`, `source`, `table`, `uri`, or the
name of an option. `title` is the word that Cassandra uses for such an error.
"""

from typing import ClassVar

from headrace.connector.language.parser import ParsedStatement
from headrace.plugins import ConfigError, Problem


class StatementError(ConfigError):
    """A statement that cannot be executed."""

    code = "statement"
    title: ClassVar[str] = "InvalidRequest"

    def __init__(self, key: str, message: str, hint: str = "") -> None:
        """*key* names the part of the statement that is wrong."""
        super().__init__([Problem(key, message, hint)])


class BadNameError(StatementError):
    """A name that a sink, keyspace or table cannot have."""

    code = "bad_name"


class BadUriError(StatementError):
    """A sink URI that cannot be read."""

    code = "bad_uri"


class UnknownPluginError(StatementError):
    """No installed sink has this URI scheme, or no source this word."""

    code = "unknown_plugin"


class AlreadyExistsError(StatementError):
    """A sink or source of this name exists."""

    code = "already_exists"
    title = "AlreadyExists"


class NotFoundError(StatementError):
    """No sink or source has this name."""

    code = "not_found"


class AmbiguousError(StatementError):
    """The statement fits several sources."""

    code = "ambiguous"


class NotStoppedError(StatementError):
    """Positions can be changed only while the source is stopped and no worker owns a split."""

    code = "not_stopped"


class InUseError(StatementError):
    """A source still writes into the sink that was to be dropped."""

    code = "in_use"


class SystemKeyspaceError(StatementError):
    """A source on a table that belongs to Cassandra itself."""

    code = "system_keyspace"


class NotAvailableError(StatementError):
    """The statement needs a job, a state, or an ability of a plugin, and it is missing."""

    code = "not_available"


class BadPositionError(StatementError):
    """The position is not one of the source."""

    code = "bad_position"


class BadRunError(StatementError):
    """The run is impossible for its part, time or sink; or it is over."""

    code = "bad_run"


class JobUndefinedError(StatementError):
    """The statements give a job no sink and tables, or more than one sink."""

    code = "job_undefined"


def describe_error(parsed: ParsedStatement, error: ConfigError) -> str:
    """Return every problem of *error* with its line and a caret."""
    title = error.title if isinstance(error, StatementError) else "ConfigurationException"
    blocks = []
    for problem in error.problems:
        place = parsed.place(problem.key)
        # The name of a part of the statement adds nothing to the caret.
        named = isinstance(error, StatementError) or not problem.key
        message = problem.message if named else f"{problem.key}: {problem.message}"
        hint = f"\nhint: {problem.hint}" if problem.hint else ""
        blocks.append(f"{title}: {place} {message}\n{place.excerpt}{hint}")
    return "\n".join(blocks)
