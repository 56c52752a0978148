"""Completion, from the parser's expectations and from existing names.

Pure but for the schemes and options of plugins.
"""

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.control.plugins.search import (
    reads_tables,
    sink_of_scheme,
    sink_schemes,
    source_words,
)
from headrace.connector.language.formatting import format_table
from headrace.connector.language.help import COMMAND_TOPICS, STATEMENT_TOPICS
from headrace.connector.language.parser import MODES, Outlook, outlook
from headrace.connector.language.rendering import FORMATS
from headrace.connector.language.statements import TableName
from headrace.connector.shell.scanning import COMMANDS, Kind, Unit, units
from headrace.plugins import ConfigError, HeadraceError, Option, declared_options, discovery
from headrace.plugins.cql_text import TokenKind, pieces, quote_name

_WORD: Final = re.compile(r'[A-Za-z_?][A-Za-z0-9_]*\Z|"[^"]*\Z')
_CQL_STARTS: Final = (
    "BEGIN", "DELETE", "GRANT", "INSERT", "LIST", "REVOKE", "SELECT", "TRUNCATE", "UPDATE", "USE",
)  # fmt: skip
_LEVELS: Final = (
    "ALL", "ANY", "EACH_QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "LOCAL_SERIAL", "ONE", "QUORUM",
    "SERIAL", "THREE", "TWO",
)  # fmt: skip
_PLUGIN: Final = re.compile(r"\bplugin\s*=\s*'([^']*)'", re.IGNORECASE)
_OWN: Final = {"plugin": Option(doc="The plugin of a source without a table.")}
_ON_OFF: Final = ("ON", "OFF")
_ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {
    "CAPTURE": ("'", "OFF"),
    "CONSISTENCY": _LEVELS,
    "EXPAND": _ON_OFF,
    "FORMAT": tuple(FORMATS),
    "HELP": tuple(sorted({*COMMAND_TOPICS, *STATEMENT_TOPICS})),
    "PAGING": _ON_OFF,
    "SET": ("on_error",),
    "SOURCE": ("'",),
    "TIMING": _ON_OFF,
    "TRACING": _ON_OFF,
}


class Known(msgspec.Struct, frozen=True):
    """The existing objects: sinks with their URIs, the tables of sources, Cassandra's tables.

    `sources` maps a table to its word, `own` are the names of sources without a table; `tables`
    maps each of Cassandra's tables to whether CDC is on.
    """

    sinks: Mapping[str, str] = msgspec.field(default_factory=dict)
    sources: Mapping[TableName, str] = msgspec.field(default_factory=dict)
    tables: Mapping[TableName, bool] = msgspec.field(default_factory=dict)
    splits: Sequence[str] = ()
    runs: Sequence[str] = ()
    jobs: Sequence[str] = ()
    own: Sequence[str] = ()


class Suggestion(msgspec.Struct, frozen=True):
    """A text that replaces the last `replaces` characters; `meaning` explains it."""

    text: str
    replaces: int = 0
    meaning: str = ""


def suggestions(before: str, known: Known) -> list[Suggestion]:
    """Return the possible continuations of *before*, the best first."""
    last = _last_unit(before)
    text = last.text if last else ""
    blank = before[last.start + len(text) :] if last else ""
    text += blank
    quote = _open_quote(text)
    if quote >= 0:
        return list(_in_quotes(text[:quote], text[quote + 1 :], known))
    word = found[0] if (found := _WORD.search(text)) else ""
    head = text[: len(text) - len(word)]
    if head.strip():
        offered = _after(head, last.kind if last else Kind.OURS, known)
    else:
        offered = [Suggestion(start) for start in (*outlook("").expected, *_CQL_STARTS, *COMMANDS)]
    is_number = not word and text[-1:].isdigit()  # A word needs a space before it.
    return [
        msgspec.structs.replace(one, replaces=len(word))
        for one in offered
        if one.text.lower().startswith(word.lower()) and one.text != word
        if not (is_number and one.text[:1].isalpha())
    ]


def _last_unit(before: str) -> Unit | None:
    """Return the unfinished unit at the end of *before*, if there is one."""
    last = next(iter(deque(units(before), maxlen=1)), None)
    if last is None or before[last.start + len(last.text) :].lstrip().startswith(";"):
        return None
    if last.kind is not Kind.OURS and "\n" in before[last.start + len(last.text) :]:
        return None
    return last


def _open_quote(text: str) -> int:
    """Return the start of the unfinished string at the end of *text*, or -1."""
    opened = (token for token in pieces(text) if token.kind is TokenKind.OPEN)
    return next((token.start for token in opened if token.value[0] == "'"), -1)


def _after(head: str, kind: Kind, known: Known) -> Iterable[Suggestion]:
    first = head.split(maxsplit=1)[0].upper()
    if kind is Kind.COMMAND:
        words = _ARGUMENTS.get(first, ())
        if first == "SHOW":
            words = ("VERSION", "HOST")
        return [Suggestion(word) for word in words] if len(head.split()) == 1 else []
    found = outlook(head)
    if found.option and "string" in found.expected:
        return list(_values(head, found, known))
    offered = [one for what in found.expected for one in _of(what, head, found, known)]
    if first == "SHOW" and len(head.split()) == 1:
        offered += [Suggestion("VERSION"), Suggestion("HOST")]
    return offered


def _of(what: str, head: str, found: Outlook, known: Known) -> Iterator[Suggestion]:
    """Yield suggestions for *what*, which the parser expects after *head*."""
    if what.isupper() or (what == ";" and not head.endswith(";")):
        yield Suggestion(what)
    elif what == "sink name" and not head.upper().lstrip().startswith("CREATE DATA_SINK"):
        yield from (Suggestion(quote_name(name), meaning=uri) for name, uri in known.sinks.items())
    elif what == "cdc name" and not head.upper().lstrip().startswith("CREATE CDC"):
        histories = {n: uri for n, uri in known.sinks.items() if uri.startswith("history:")}
        yield from (Suggestion(quote_name(name)) for name in histories)
    elif what == "source name":
        own = () if head.upper().lstrip().startswith("CREATE") else map(quote_name, known.own)
        yield from map(Suggestion, (*source_words(), *own))
    elif what == "table name":
        yield from _tables(head, known)
    elif what == "option name":
        for name, declared in _options(head, found, known).items():
            yield Suggestion(name, meaning=declared.doc)
    elif what == "quoted URI":
        yield Suggestion("'", meaning="a URI in single quotes")
    elif what == "string" or what.startswith("quoted "):
        yield Suggestion("'")


def _tables(head: str, known: Known) -> Iterator[Suggestion]:
    """Yield tables: those of sources or, for a new source, all, those with CDC first."""
    keyspace = head[:-1].rsplit(maxsplit=1)[-1].strip('"') if head.endswith(".") else None
    creating = head.upper().lstrip().startswith("CREATE")
    offered = known.tables if creating else known.sources
    for table in sorted(offered, key=lambda t: (not known.tables.get(t), format_table(t))):
        if keyspace is None:
            meaning = "" if known.tables.get(table, True) else "CDC is off"
            yield Suggestion(format_table(table), meaning=meaning)
        elif table.keyspace == keyspace:
            yield Suggestion(quote_name(table.name))


def _options(head: str, found: Outlook, known: Known) -> Mapping[str, Option]:
    """Return the options, by name, that may still follow in the statement in *head*."""
    from headrace.connector.control.entries import RouteOptions  # noqa: PLC0415 (slow, seldom)

    of_run = _of_run(head)
    if of_run is not None:
        config_class: type | None = of_run
    elif "source" in found.spans:
        config_class = RouteOptions
    elif "cdc" in found.spans:
        config_class = sink_of_scheme("history")[1].config_class
    else:
        config_class = _sink_class(head, found, known)
    declared = _declared(config_class)
    if of_run is None and "source" in found.spans and "table" not in found.spans:
        plugin = _PLUGIN.search(head)
        declared |= _declared(_config_class("sources", plugin[1])) if plugin else _OWN
    return {
        name: each
        for name, each in declared.items()
        if name not in found.spans and not each.keys_allowed
    }


def _of_run(head: str) -> type | None:
    """Return the class of options of the run that the statement in *head* requests, or None."""
    from headrace.connector.control.runs.options import OF_VERB  # noqa: PLC0415 (slow, seldom)

    word = next(iter(head.split()), "")
    return OF_VERB.get(word.upper())


def _declared(config_class: type | None) -> dict[str, Option]:
    if config_class is None:
        return {}
    return {name: declared for name, (_, declared) in declared_options(config_class).items()}


def _config_class(group: str, name: str) -> type | None:
    try:
        found: type = discovery.load(group, name).config_class
    except HeadraceError:
        return None
    return found


def _without_tables() -> Iterator[str]:
    """Yield the names of the sources that are created without a table."""
    for name in sorted(discovery.names("sources")):
        with contextlib.suppress(HeadraceError):
            if not reads_tables(discovery.load("sources", name)):
                yield name


def _sink_class(head: str, found: Outlook, known: Known) -> type | None:
    """Return the class of options of the sink that *head* creates or alters."""
    if "uri" in found.spans:
        start, end = found.spans["uri"]
        uri = head[start:end].strip("'")
    else:
        start, end = found.spans.get("sink", (0, 0))
        uri = known.sinks.get(head[start:end].strip('"'), "")
    try:
        config_class: type = sink_of_scheme(uri.partition("://")[0].lower())[1].config_class
    except ConfigError:
        return None
    return config_class


def _values(head: str, found: Outlook, known: Known) -> Iterator[Suggestion]:
    declared = _options(head[: found.spans[found.option][0]], _without_last(found), known)
    chosen = declared.get(found.option)
    if chosen is _OWN["plugin"]:
        yield from (Suggestion(f"'{name}'") for name in _without_tables())
        return
    if chosen is None:
        yield from map(Suggestion, ("'", "TRUE", "FALSE"))
        return
    for choice in chosen.choices:
        yield Suggestion(f"'{choice}'")
    if chosen.secret:
        yield Suggestion("'${env:", meaning="a reference to an environment variable")
        yield Suggestion("'${file:", meaning="a reference to a file")
    yield Suggestion("'")


def _without_last(found: Outlook) -> Outlook:
    spans = {name: span for name, span in found.spans.items() if name != found.option}
    return Outlook(found.expected, "", spans)


def _in_quotes(head: str, typed: str, known: Known) -> Iterator[Suggestion]:
    """Yield continuations of a string that was opened after *head*."""
    found = outlook(head)
    expected = found.expected
    offered: Sequence[str] = ()
    if "quoted position" in expected:
        offered = ("earliest'", "latest'")
    elif "quoted mode" in expected:
        offered = [f"{mode}'" for mode in MODES]
    elif "quoted split" in expected:
        offered = [f"{split}'" for split in known.splits]
    elif "quoted run" in expected:
        offered = [f"{run}'" for run in known.runs]
    elif "quoted job" in expected:
        offered = [f"{job}'" for job in known.jobs]
    elif "quoted operation" in expected and "cdc_time" in found.spans:  # Not Cassandra's column.
        from headrace.connector.history.query import OPERATION_NAMES  # noqa: PLC0415 (slow, seldom)

        offered = [f"{name}'" for name in OPERATION_NAMES]
    elif "quoted URI" in expected:
        yield from _in_uri(typed)
    for text in offered:
        if text.startswith(typed):
            yield Suggestion(text, len(typed))


def _in_uri(typed: str) -> Iterator[Suggestion]:
    scheme, slashes, rest = typed.partition("://")
    if not slashes:
        for known in sink_schemes():
            if known.startswith(typed):
                yield Suggestion(f"{known}://", len(typed))
        return
    _, mark, query = rest.partition("?")
    part = query.rpartition("&")[2]
    if not mark or "=" in part:
        return
    try:
        options = declared_options(sink_of_scheme(scheme.lower())[1].config_class)
    except ConfigError:
        return
    given = {pair.partition("=")[0] for pair in query.split("&")}
    for name, (_, declared) in options.items():
        if name.startswith(part) and name not in given and not declared.keys_allowed:
            yield Suggestion(f"{name}=", len(part), declared.doc)
