"""The newest images of events, read from the source: `LATEST FROM SOURCE`."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.connector.control.plugins.probing import Answer
from headrace.connector.history.images import WIDE, state_of
from headrace.connector.history.query import Event
from headrace.connector.history.rendering import Shape
from headrace.plugins import Document, RecordSchema

Read = Callable[[str, str, Sequence[Document], str], Answer]
"""Asks a source for rows of a table by their keys, at a consistency level; see `Running.rows`."""


def with_source_rows(
    events: Sequence[Event], read: Callable[[Sequence[Document]], Answer], now_s: int
) -> list[Event]:
    """Return *events* with the rows that *read* returns as `latest`; each row is read once.

    A row that the source does not have is `{}`.
    """
    keys = {_name(event): event.key for event in events if event.operation not in WIDE}
    if not keys:
        return list(events)
    answer = read(list(keys.values()))
    shape = Shape(_schema(*answer["schema"]))
    found: dict[str, Document] = {}
    for text in answer["changes"]:
        content = base64.b64decode(text)
        value = shape.read(content)
        payload, state = value["payload"], state_of(shape.folded(None, content))
        partition = [payload[name] for name in shape.view.key]
        clustering = [] if value["isStatic"] else [payload[n] for n in shape.view.clustering]
        image = (
            shape.static(partition, state, now_s)
            if value["isStatic"]
            else shape.row((partition, clustering), state, None, now_s)
        )
        found[json.dumps(shape.key(partition, clustering))] = image or {}
    return [
        event
        if event.operation in WIDE
        else msgspec.structs.replace(event, latest=found.get(_name(event), {}))
        for event in events
    ]


def _name(event: Event) -> str:
    """Return the name of a row, or of a partition for its static columns."""
    return json.dumps(event.key)


def _schema(table: str, text: str, schema_id: str, key: Any, value: Any) -> RecordSchema:  # noqa: ANN401 (JSON)
    return RecordSchema(table, text, base64.b64decode(schema_id), key, value)
