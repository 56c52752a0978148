"""The verbs about sinks; `commands` has the others."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from headrace.connector.control.access.gate import Gate, needs
from headrace.connector.control.access.permission import Guard, Role
from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.connector_config import sink_entry, sink_entry_of
from headrace.connector.control.entries import CLASS_KEY, NAME_KEY, TASKS_KEY, SinkEntry
from headrace.connector.control.errors import AlreadyExistsError, InUseError
from headrace.connector.control.plugins.sink_uri import parse_sink_uri, without_options
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import (
    AlterSink,
    Changes,
    CreateSink,
    DropSink,
    DropSource,
    Options,
)
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import ConfigError, Problem

# A config that a client of Kafka Connect gave is stored as it was given, also after a change.
_AS_GIVEN: Final = (NAME_KEY, CLASS_KEY, TASKS_KEY)


class SinkCommands:
    """Creates, changes and drops sinks. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy, guard: Guard) -> None:
        """Use *notes*; *guard* decides which callers may."""
        self._notes = notes
        self._gate = Gate(notes, guard)
        self._catalogue = Catalogue(notes)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run the block so that the verbs in it take effect all together, or not at all."""
        with self._catalogue.changing():
            yield

    def sinks(self) -> Sequence[SinkEntry]:
        """Return all sinks by name."""
        return self._catalogue.sinks()

    def sink(self, name: str) -> SinkEntry:
        """Return one sink. Raises NotFoundError."""
        return self._catalogue.sink(name)

    @needs(Role.ADMIN)
    def create_sink(self, statement: CreateSink) -> bool:
        """Create a sink; return False if it exists and that is allowed.

        Raises:
            ConfigError: with every mistake.
            AlreadyExistsError: there is one of that name.

        """
        entry = sink_entry(statement)
        with self._catalogue.changing():
            if not self._catalogue.has_sink(entry.name):
                self._add(entry)
                return True
        if statement.if_not_exists:
            return False
        raise AlreadyExistsError(
            "sink",
            f"data sink {entry.name} already exists",
            f"use IF NOT EXISTS, or first {format_statement(DropSink(name=entry.name))}",
        )

    @needs(Role.ADMIN)
    def alter_sink(self, statement: AlterSink) -> SinkEntry | None:
        """Change options of a sink, or its URI; None if it does not exist and that is allowed.

        Its running jobs settle and commit the records in flight, then take the new options.

        Raises:
            NotFoundError: the sink does not exist.
            ConfigError: with every mistake; nothing was changed.

        """
        with self._catalogue.changing():
            if statement.if_exists and not self._catalogue.has_sink(statement.name):
                return None
            known = self._catalogue.sink(statement.name)
            before = parse_statement(known.statement)
            assert isinstance(before, CreateSink)  # noqa: S101 (the formatter wrote it)
            entry = sink_entry(altered_sink(before, statement))
            kept = {k: v for k, v in known.config.items() if k in _AS_GIVEN}
            entry = replace(entry, config={**entry.config, **kept})
            self._catalogue.replace_sink(entry)
        return entry

    @needs(Role.ADMIN)
    def drop_sink(self, name: str, *, if_exists: bool = False) -> None:
        """Delete a sink.

        Raises:
            NotFoundError: the sink does not exist, and *if_exists* does not allow that.
            InUseError: a source writes into it.

        """
        with self._catalogue.changing():
            if if_exists and not self._catalogue.has_sink(name):
                return
            sink = self._catalogue.sink(name)
            users = self._users(sink.name)
            if users:
                first = self._catalogue.source(users[0])
                more = f" and {len(users) - 1} more" if users[1:] else ""
                drop = format_statement(DropSource(word=first.word, table=first.table))
                raise InUseError(
                    "sink", f"data sink {sink.name} is used by {first.name}{more}", f"first {drop}"
                )
            self._catalogue.remove_sink(sink.name)

    @needs(Role.OPERATOR)
    def validate_sink(self, name: str) -> SinkEntry:
        """Return a sink that the caller wants to check. Raises NotFoundError."""
        return self._catalogue.sink(name)

    # The same for connector configs of Kafka Connect's clients.

    @needs(Role.ADMIN)
    def put_sink(self, config: Mapping[str, str], *, replaces: bool = True) -> bool:
        """Create a sink from a connector config, or give it another one; say whether it is new.

        The config is stored as it is given.

        Raises:
            ConfigError: with every mistake; nothing was changed.
            AlreadyExistsError: there is one of that name, and *replaces* does not allow that.

        """
        entry = sink_entry_of(config)
        with self._catalogue.changing():
            if not self._catalogue.has_sink(entry.name):
                self._add(entry)
                return True
            if not replaces:
                raise AlreadyExistsError("sink", f"data sink {entry.name} already exists")
            if entry.config != self._catalogue.sink(entry.name).config:
                self._catalogue.replace_sink(entry)
        return False

    def check_sink(self, config: Mapping[str, str]) -> Sequence[Problem]:
        """Return what is wrong with a sink's connector config. Changes nothing."""
        try:
            sink_entry_of(config)
        except ConfigError as error:
            return error.problems
        return ()

    def _add(self, entry: SinkEntry) -> None:
        if self._catalogue.has_source(entry.name):
            raise AlreadyExistsError("sink", f"{entry.name} is the name of a data source")
        self._catalogue.add_sink(entry)

    def _users(self, sink: str) -> Sequence[str]:
        return [source.name for source in self._catalogue.sources() if source.sink == sink]


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
