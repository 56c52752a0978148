"""The interface of services that execute statements: on this machine, or on another."""

from typing import Final, Protocol

from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import Statement

# The variables with the login of `remote`.
LOGIN_VARIABLE: Final = "HEADRACE_REST_PASSWORD"
BEARER_VARIABLE: Final = "HEADRACE_REST_TOKEN"


class Executes(Protocol):
    """`ControlService`, or `RemoteService`."""

    def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement* and return its answer. Raises HeadraceError."""
