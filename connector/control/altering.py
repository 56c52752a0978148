"""What an ALTER makes of a statement: the CREATE that would have made the changed object. Pure."""

import dataclasses

from headrace.connector.control.sink_uri import parse_sink_uri, without_options
from headrace.connector.shell.statements import (
    AlterSink,
    Changes,
    CreateSink,
    Options,
)


def altered_sink(before: CreateSink, change: AlterSink) -> CreateSink:
    """Return *before* as *change* wants it: what is not named stays.

    A new URI takes the place of the old one with its query; an option that it gives replaces one
    that was given by AND, and an option given by AND replaces one of the old URI.

    Raises:
        BadUriError: the new URI cannot be read.

    """
    options = _changed(before.options, change.options)
    if change.uri is None:
        uri = without_options(before.uri, {name for name, _ in change.options})
        return dataclasses.replace(before, uri=uri, options=options)
    now_in_uri = {name for name, _ in parse_sink_uri(change.uri).query}
    named = {name for name, _ in change.options}
    kept = tuple(pair for pair in options if pair[0] in named or pair[0] not in now_in_uri)
    return dataclasses.replace(before, uri=change.uri, options=kept)


def _changed(before: Options, changes: Changes) -> Options:
    after: dict[str, str | None] = {**dict(before), **dict(changes)}
    return tuple((name, value) for name, value in after.items() if value is not None)
