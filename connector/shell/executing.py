"""What executes statements for a command: the service of this machine, or of another."""

from typing import Final, Protocol

from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import Statement

# What `remote` logs in with.
LOGIN_VARIABLE: Final = "HEADRACE_REST_PASSWORD"
BEARER_VARIABLE: Final = "HEADRACE_REST_TOKEN"


class Executes(Protocol):
    """`ControlService`, or `RemoteService`."""

    def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement* and return its answer. Raises HeadraceError."""
