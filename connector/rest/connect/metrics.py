"""Connectors and their tasks under the names that Kafka Connect's metrics have in Prometheus.

They are those of Connect's MBeans as the JMX exporter writes them, which dashboards and alerts for
Kafka Connect query.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from headrace import __version__
from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import CLASS_KEY
from headrace.connector.rest.connect.connectors import (
    connector_state,
    connector_type,
    everything,
    task_state,
    tasks_of,
)
from headrace.plugins.metrics import Measure, gauge

_WORKER: Final = "kafka_connect_connect_worker_metrics"
_TASK_STATES: Final = ("RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "RESTARTING")


def connect_measures(commands: Commands) -> Sequence[Measure]:
    """Return the metrics; reads the state."""
    return list(_measures(commands))


def _measures(commands: Commands) -> Iterator[Measure]:
    found = everything(commands)
    tasks = {status.name: tasks_of(status) for _, status in found}
    yield gauge(f"{_WORKER}_connector_count", "Connectors.", [({}, len(found))])
    yield gauge(f"{_WORKER}_task_count", "Tasks.", [({}, sum(map(len, tasks.values())))])
    yield gauge(
        f"{_WORKER}_connector_total_task_count",
        "Tasks of a connector.",
        [({"connector": name}, len(each)) for name, each in tasks.items()],
    )
    states = {name: Counter(map(task_state, each)) for name, each in tasks.items()}
    for state in _TASK_STATES:
        yield gauge(
            f"{_WORKER}_connector_{state.lower()}_task_count",
            f"Tasks of a connector that are {state}.",
            [({"connector": name}, counts[state]) for name, counts in states.items()],
        )
    yield gauge(
        "kafka_connect_connector_metrics",
        "1 for the status of a connector.",
        [
            (
                {
                    "connector": entry.name,
                    "connector_class": entry.config[CLASS_KEY],
                    "connector_type": connector_type(entry),
                    "connector_version": __version__,
                    "status": connector_state(status).lower(),
                },
                1,
            )
            for entry, status in found
        ],
    )
