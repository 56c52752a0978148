"""ALTER DATA_SINK: makes the statement that creates the changed sink."""

import msgspec

from headrace.connector.control.plugins.sink_uri import parse_sink_uri, without_options
from headrace.connector.language.statements import AlterSink, Changes, CreateSink, Options


def altered_sink(before: CreateSink, change: AlterSink) -> CreateSink:
    """Return *before* with *change* applied; options that *change* does not name stay.

    A new URI replaces the old one and its query. An option in the new URI replaces the same option
    given by AND, and an option that *change* gives by AND replaces the same option of the old URI.

    Raises:
        BadUriError: the new URI cannot be read.

    """
    options = _changed(before.options, change.options)
    if change.uri is None:
        uri = without_options(before.uri, {name for name, _ in change.options})
        return msgspec.structs.replace(before, uri=uri, options=options)
    now_in_uri = {name for name, _ in parse_sink_uri(change.uri).query}
    named = {name for name, _ in change.options}
    kept = tuple(pair for pair in options if pair[0] in named or pair[0] not in now_in_uri)
    return msgspec.structs.replace(before, uri=change.uri, options=kept)


def _changed(before: Options, changes: Changes) -> Options:
    after: dict[str, str | None] = {**dict(before), **dict(changes)}
    return tuple((name, value) for name, value in after.items() if value is not None)
