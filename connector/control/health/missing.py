"""The definitions that are missing to run a job, and the statements that add them."""

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
    """Return the missing definitions, by the number of sinks and sources.

    The job of the Sidecar's services counts as a source; it has a sink that is not counted.
    """
    counted = ((sinks or sources, _NO_SINK), (sources, _NO_SOURCE))
    return [each for count, each in counted if not count]
