"""What has to be defined before there is something to do, and the statement that does."""

from collections.abc import Sequence
from typing import Final

from headrace.plugins import Problem

_NO_SINK: Final = Problem(
    "sink",
    "no data sink is defined",
    "CREATE DATA_SINK name WITH 'kafka://host:9092?topic=changes';",
)
_NO_SOURCE: Final = Problem(
    "source",
    "no data source is defined",
    "CREATE DATA_SOURCE cdc ON TABLE keyspace.table WITH sink_name;",
)


def missing(sinks: int, sources: int) -> Sequence[Problem]:
    """Return what is missing where there are so many sinks and sources; it names none of them.

    The job of the Sidecar's services counts as a source; it has a sink that is not counted.
    """
    counted = ((sinks or sources, _NO_SINK), (sources, _NO_SOURCE))
    return [each for count, each in counted if not count]
