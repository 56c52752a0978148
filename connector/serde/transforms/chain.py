"""Applies the transforms of a sink in order, each to the records its predicate selects."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.connector.serde.transcode.edit import Edit
from headrace.connector.serde.transforms.names import check_fields
from headrace.plugins import (
    BadRecordError,
    ConfigError,
    Predicate,
    Problem,
    Quarantined,
    Record,
    RecordSchema,
    SinkOptions,
    Transform,
    parse_config,
)
from headrace.plugins.discovery import load
from headrace.plugins.records.codecs import set_aside

_STAGE: Final = "TRANSFORMATION"
_OURS: Final = ("type", "predicate", "negate")
_NEGATE: Final = {"true": True, "false": False}


class Transformed(msgspec.Struct, frozen=True):
    """The transformed records of a batch; `filtered` counts dropped records by table."""

    records: Sequence[Record]
    quarantined: Sequence[Quarantined]
    filtered: Mapping[str, int]


class SchemaEdits(msgspec.Struct, frozen=True):
    """The transforms of all records of one schema as successive edits."""

    key: Sequence[Edit]
    value: Sequence[Edit]
    schema: RecordSchema
    topic: str
    is_dropped: bool


class _Link(msgspec.Struct):
    name: str
    transform: Transform
    predicate: Predicate | None
    negate: bool
    schemas: dict[bytes, RecordSchema]

    def means(self, record: Record) -> bool:
        return self.predicate is None or self.predicate.test(record) != self.negate

    def means_all(self, table: str, topic: str) -> bool | None:
        """Return whether records of *table* for *topic* are selected; None: some are."""
        if self.predicate is None:
            return True
        meant = self.predicate.of_table(table, topic)
        return None if meant is None else meant != self.negate

    def topics(self, table: str, topics: Sequence[str]) -> Sequence[str]:
        """Return the possible topics of records of *table* for *topics* after this transform."""
        found = []
        for topic in topics:
            meant = self.means_all(table, topic)
            found += [] if meant else [topic]
            if meant is not False:
                with contextlib.suppress(BadRecordError):  # Such records are not sent.
                    found.append(self.transform.topic(topic))
        return list(dict.fromkeys(found))

    def failed(self, error: Exception, table: str) -> BadRecordError:
        """Return the error for a record or a schema of *table*."""
        named = error if isinstance(error, BadRecordError) else BadRecordError(_reported(error))
        named.place = ", ".join(filter(None, (table, f"transforms.{self.name}", named.place)))
        return named


class Chain:
    """Applies the transforms of a sink. For one thread."""

    def __init__(self, options: SinkOptions) -> None:
        """Load transforms and predicates.

        Raises:
            ConfigError: a plugin is missing, or its options are wrong.

        """
        problems = [*_unlisted(options), *_negations(options)]
        if problems:
            raise ConfigError(problems)
        predicates = {
            name: _plugin("predicates", name, options.predicates_options)
            for name in options.predicates
        }
        self._links = [_link(name, options, predicates) for name in options.transforms]
        self._failed: dict[bytes, BadRecordError] = {}
        # By schema and first topic; None: it depends on the records.
        self._edits: dict[tuple[bytes, str], object] = {}

    def __bool__(self) -> bool:
        """Return whether there are transforms."""
        return bool(self._links)

    def schema(self, schema: RecordSchema, topic: str) -> RecordSchema:
        """Return the schema of records of *schema* after the last transform.

        Raises:
            BadRecordError: there is none. From now on all its records are dead-lettered, even if
                transforms succeed: consumers would not find their schema.

        """
        topics: Sequence[str] = [topic]
        for link in self._links:
            try:
                if any(link.means_all(schema.table, each) is not False for each in topics):
                    schema = _after(link, schema)
                topics = link.topics(schema.table, topics)
            except Exception as error:  # noqa: BLE001 (a transform may raise anything: R11)
                failed = self._failed[schema.schema_id] = link.failed(error, schema.table)
                raise failed from None
        return schema

    def edits(self, schema: RecordSchema, topic: str) -> SchemaEdits | None:
        """Return the edits for records of *schema* for *topic*; None: they depend on records."""
        known = self._edits.get((schema.schema_id, topic), self)
        if known is self:
            try:
                known = self._edits_of(schema, topic)
            except Exception:  # noqa: BLE001 (a transform's: raised again for the record)
                known = None
            self._edits[schema.schema_id, topic] = known
        return known if isinstance(known, SchemaEdits) else None

    def _edits_of(self, schema: RecordSchema, topic: str) -> SchemaEdits | None:
        if not self._links:
            return SchemaEdits((), (), schema, topic, is_dropped=False)
        # Imported here, because most jobs have no transforms.
        from headrace.connector.serde.transforms import builtin, edits  # noqa: PLC0415

        parts: dict[str, list[Edit]] = {"key": [], "value": []}
        for link in self._links:
            meant = link.means_all(schema.table, topic)
            if meant is None:
                return None
            if not meant:
                continue
            transform = link.transform
            if type(transform) is builtin.Filter:
                return SchemaEdits((), (), schema, topic, is_dropped=True)
            if type(transform) is builtin.RegexRouter:
                topic = transform.topic(topic)
            else:
                before = schema.key if transform.part == "key" else schema.value
                parts[transform.part] += edits.edits_of(transform, before, topic)
            schema = _after(link, schema)
        if schema.schema_id in self._failed:
            return None
        return SchemaEdits(parts["key"], parts["value"], schema, topic, is_dropped=False)

    def topics(self, table: str, topic: str) -> Sequence[str]:
        """Return the possible topics of records of *table* whose first topic is *topic*."""
        topics: Sequence[str] = [topic]
        for link in self._links:
            topics = link.topics(table, topics)
        return topics

    def of_keys(self) -> Sequence[str]:
        """Return the names of the transforms that change keys."""
        if not self._links:
            return []
        from headrace.connector.serde.transforms.builtin import ValueToKey  # noqa: PLC0415 (as above)

        return [
            link.name
            for link in self._links
            if link.transform.part == "key" or isinstance(link.transform, ValueToKey)
        ]

    def check_topics(self, topics: Mapping[str, str]) -> None:
        """Refuse transforms that change the topics of tables; *topics* has their first topics.

        Raises:
            ConfigError: the sink's output can only be read from its own topics.

        """
        if any([topic] != self.topics(table, topic) for table, topic in topics.items()):
            hint = "only the topics of the sink's own options are read"
            raise ConfigError([Problem("sink.transforms", "change the topics of records", hint)])

    def apply(self, records: Sequence[Record]) -> Transformed:
        """Transform *records*; only a record that fails is dead-lettered (I8)."""
        lost: list[Quarantined] = []
        made = list(records)
        for link in self._links:
            made = _applied(link, made, lost)
        if self._failed:
            made = self._known(made, lost)
        before = Counter(record.schema.table for record in records)
        after = Counter(record.schema.table for record in made)
        gone = Counter(each.origin["table"] for each in lost)
        filtered = {t: n - after[t] - gone[t] for t, n in before.items() if n > after[t] + gone[t]}
        return Transformed(made, lost, filtered)

    def _known(self, records: Sequence[Record], lost: list[Quarantined]) -> list[Record]:
        known = []
        for record in records:
            error = self._failed.get(record.schema.schema_id)
            if error is None:
                known.append(record)
            else:
                lost.append(set_aside(record, error, _STAGE))
        return known


def _applied(link: _Link, records: Sequence[Record], lost: list[Quarantined]) -> list[Record]:
    made: list[Record] = []
    run: list[Record] = []
    for record in records:  # Other records keep their places among the selected ones.
        try:
            meant = link.means(record)
        except Exception as error:  # noqa: BLE001 (a predicate's)
            lost.append(set_aside(record, link.failed(error, record.schema.table), _STAGE))
            continue
        if meant:
            run.append(record)
        else:
            made += _transformed(link, run, lost)
            made.append(record)
            run = []
    return made + _transformed(link, run, lost)


def _transformed(link: _Link, run: Sequence[Record], lost: list[Quarantined]) -> list[Record]:
    if not run:
        return []
    try:
        return [
            record.changed(schema=_after(link, record.schema))
            for record in link.transform.batch(run)
        ]
    except Exception as error:  # noqa: BLE001 (a transform may raise anything: R11)
        if len(run) == 1:
            lost.append(set_aside(run[0], link.failed(error, run[0].schema.table), _STAGE))
            return []
    return [made for record in run for made in _transformed(link, [record], lost)]


def _reported(error: Exception) -> str:
    return f"failed with {type(error).__name__}"  # Its message may contain values.


def _after(link: _Link, schema: RecordSchema) -> RecordSchema:
    after = link.schemas.get(schema.schema_id)
    if after is None:
        after = link.transform.schema(schema)
        for before, made in ((schema.key, after.key), (schema.value, after.value)):
            if made is not before:
                check_fields(made)
        link.schemas[schema.schema_id] = after
    return after


def _unlisted(options: SinkOptions) -> Iterator[Problem]:
    """Yield problems of options without effect, and of transforms used twice."""
    used = [value for key, value in options.transforms_options.items() if _own(key) == "predicate"]
    for group, listed, given in (
        ("transforms", options.transforms, options.transforms_options),
        ("predicates", options.predicates, options.predicates_options),
    ):
        for name in (name for name, count in Counter(listed).items() if count > 1):
            yield Problem(group, f"expected each name once, found {name!r} again")
        for name in dict.fromkeys(key.split(".")[1] for key in given):
            if name not in listed:
                hint = f"add {name} to {group}, or leave out {group}.{name}"
                yield Problem(f"{group}.{name}", f"{name!r} is not in {group}", hint)
    for name in options.predicates:
        if name not in used:
            hint = f"give a transform `predicate: {name}`, or leave it out"
            yield Problem("predicates", f"no transform has the predicate {name!r}", hint)


def _negations(options: SinkOptions) -> Iterator[Problem]:
    given = options.transforms_options
    for key, text in given.items():
        if _own(key) != "negate":
            continue
        if text.lower() not in _NEGATE:
            yield Problem(key, f"expected true or false, found {text!r}")
        elif _NEGATE[text.lower()] and f"{key.rpartition('.')[0]}.predicate" not in given:
            yield Problem(key, "there is no predicate to negate", "name one with `predicate`")


def _own(key: str) -> str:
    """Return the transform's own name for an option."""
    return key.split(".", 2)[2]


def _link(name: str, options: SinkOptions, predicates: Mapping[str, Predicate]) -> _Link:
    prefix = f"transforms.{name}."
    given = options.transforms_options
    wanted = given.get(f"{prefix}predicate")
    if wanted is not None and wanted not in predicates:
        hint = f"name it in predicates, and give predicates.{wanted}.type"
        raise ConfigError([Problem(f"{prefix}predicate", f"no predicate {wanted!r}", hint)])
    negate = _NEGATE[given.get(f"{prefix}negate", "false").lower()]
    transform: Transform = _plugin("transforms", name, given)
    return _Link(name, transform, predicates.get(wanted or ""), negate, {})


def _plugin(group: str, name: str, given: Mapping[str, str]) -> Any:  # noqa: ANN401 (one of two)
    """Load the plugin that `<group>.<name>.type` names, in Kafka Connect's long or short form."""
    prefix = f"{group}.{name}."
    options = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
    kind = options.get("type")
    if kind is None:
        raise ConfigError([Problem(f"{prefix}type", "is required", "as in MaskField$Value")])
    plugin_name, _, part = kind.rpartition(".")[2].partition("$")
    plugin = load(group, plugin_name, key=f"{prefix}type")
    own = {k: v for k, v in options.items() if k not in _OURS}
    try:
        config: object = parse_config(plugin.config_class, own)
    except ConfigError as error:
        problems = [Problem(f"{prefix}{p.key}", p.message, p.hint) for p in error.problems]
        raise ConfigError(problems) from error
    if group == "predicates":
        return plugin(config)
    if part not in ("", "Key", "Value"):
        raise ConfigError([Problem(f"{prefix}type", f"expected $Key or $Value, found ${part}")])
    return plugin(config, part.lower() or "value")
