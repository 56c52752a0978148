"""Rows of a live table as the bytes that a node sends, which are those that a log has."""

from typing import Any, Final

from cassandra.cluster import Session
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int

_FIRST_WITH_TIMES: Final = 5  # The release that tells times of elements.
_RELEASES: Final = (
    "SELECT release_version FROM system.local",
    "SELECT release_version FROM system.peers",
)


class RawResult(ResultMessage):  # type: ignore[misc]  # The driver has no types.
    """Rows as the bytes that the node sent: as a log has them."""

    def recv_results_rows(self, f: Any, *arguments: Any) -> None:  # noqa: ANN401 (the driver's)
        """Read the rows of an answer."""
        _, user_types, metadata, *_ = arguments
        self.recv_results_metadata(f, user_types)
        columns = self.column_metadata or metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(read_int(f))]


class RawProtocol(_ProtocolHandler):  # type: ignore[misc]  # The driver has no types.
    """Answers with raw rows."""

    message_types_by_opcode = _ProtocolHandler.message_types_by_opcode | {
        ResultMessage.opcode: RawResult
    }


def tells_times(session: Session) -> bool:
    """Say whether every node tells write times and TTLs of the elements of collections."""
    told = [row.release_version for each in _RELEASES for row in session.execute(each)]
    releases = [int(str(each).partition(".")[0]) for each in told if each]  # Not of who joins.
    return min(releases) >= _FIRST_WITH_TIMES
