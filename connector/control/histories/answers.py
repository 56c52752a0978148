"""Makes the result table of a SELECT from events of a history."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.connector.control.histories.queries import BadQueryError
from headrace.connector.history.arrival import time_text
from headrace.connector.history.config import SCOPES
from headrace.connector.history.query import Event, Page
from headrace.connector.history.reading import History
from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import SelectCdc
from headrace.plugins import Document

CDC_JSON: Final = "CDC JSON"  # Phoenix's name of its only column besides the key.


_DUMP: Final = json.JSONEncoder(ensure_ascii=False).encode
_IMAGES: Final = frozenset(("pre_image", "change_image", "post_image", "latest_image"))


def _image(image: object) -> str:
    """Return an image as JSON, or an empty string. A `TextShape` has written it as text.

    An image read from the source is a document.
    """
    return image if isinstance(image, str) else "" if image is None else _DUMP(image)


def _object(document: Document) -> str:
    """Return a document as JSON whose members may be images."""
    members = (
        f"{_DUMP(name)}: {_image(value) if name in _IMAGES else _DUMP(value)}"
        for name, value in document.items()
    )
    return f"{{{', '.join(members)}}}"


def _flags(event: Event) -> str:
    named = {
        "partial": event.partial,
        "derived": event.derived,
        "static": event.static,
        "ineffective": not event.effective,
        "expired": event.expired,
    }
    return " ".join(name for name, is_set in named.items() if is_set)


def _written(event: Event) -> str:
    ms, us = divmod(event.written_us, 1_000)
    try:
        return f"{time_text(ms).removesuffix('Z')}{us:03d}Z"
    except OverflowError:  # A client may write at any number of µs.
        return str(event.written_us)


_BEFORE_KEY: Final[Mapping[str, Callable[[Event], str]]] = {
    "cdc_time": lambda event: time_text(event.time_ms),
    "seq": lambda event: str(event.sequence),
    "partition_id": lambda event: str(event.partition_id),
}
_BEHIND_KEY: Final[Mapping[str, Callable[[Event], str]]] = {
    "op": lambda event: event.operation.lower(),
    "write_time": _written,
    "change": lambda event: _image(event.change),
    "pre": lambda event: _image(event.pre),
    "post": lambda event: _image(event.post),
    "latest": lambda event: _image(event.latest),
    "flags": _flags,
}


def answer(statement: SelectCdc, page: Page, history: History) -> ResultTable:
    """Return the result of *statement*: *page* of *history*, whose shape is `TextShape`.

    Raises:
        BadQueryError: it names an unknown column.

    """
    footer = [("next_token", page.token)] if page.token else []
    footer.append(("safe_until", time_text(page.safe_until_ms)))
    if statement.as_json:
        documents = tuple((_object(_whole(event)),) for event in page.events)
        return ResultTable(("json",), documents, footer=tuple(footer))
    cells = _cells(history.key_columns())
    scopes = history.include if statement.scopes is None else statement.scopes
    names = statement.columns or tuple(
        name for name in cells if name != CDC_JSON and (name not in SCOPES or name in scopes)
    )
    for name in names:
        if name not in cells:
            hint = f"there are {', '.join(cells)}"
            raise BadQueryError(name, f"column {name[:48]!r} does not exist", hint)
    rows = tuple(tuple(cells[name](event) for name in names) for event in page.events)
    return ResultTable(names, rows, footer=tuple(footer))


def _cells(key: Sequence[str]) -> dict[str, Callable[[Event], str]]:
    """Return a function of each column's cells; columns of the key take precedence over ours."""
    of_key = {name: (lambda event, n=name: _shown(event.key.get(n))) for name in key}
    made = {**_BEFORE_KEY, **of_key}
    return (
        made
        | {name: cell for name, cell in _BEHIND_KEY.items() if name not in of_key}
        | {CDC_JSON: lambda event: _object(event.json_document())}
    )


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _DUMP(value)


def _whole(event: Event) -> Document:
    """Return an event as one document: when it arrived, its key, and Phoenix's members."""
    flags = _flags(event)
    return {
        "cdc_time": time_text(event.time_ms),
        "seq": event.sequence,
        "partition_id": event.partition_id,
        "key": event.key,
        "write_time": _written(event),
        **event.json_document(),
        **({"flags": flags.split()} if flags else {}),
    }
