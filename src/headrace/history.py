"""Change history in Python: `connect` opens one."""

from headrace.connector.history.client import Client, Selection, connect
from headrace.connector.history.query import Event

__all__ = ["Client", "Event", "Selection", "connect"]
