"""From a sink's options to where its schemas are published."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from headrace.connector.job import Job
from headrace.connector.serde import Encoder
from headrace.connector.serde.framing import Framing
from headrace.connector.serde.publishing import PARTS, Publisher
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    ClaimStore,
    ConfigError,
    Context,
    MissingRequirementError,
    Problem,
    SchemaStore,
    Sink,
    SinkOptions,
    declared_options,
    is_reference,
    parse_config,
)
from headrace.plugins.discovery import load

_KEY: Final = "schema.store"
_CLAIMS_KEY: Final = "large.store"
_OTHER: Final = "_other"  # Makes the name of a table that of another.


def encoder_of(job: Job, context: Context, sink: Sink) -> Encoder:
    """Return what encodes the records of *job*, and publishes their schemas; for one thread.

    Raises:
        ConfigError: what the sink or the schema store is asked for cannot be.

    """
    options = job.sink_config
    if not isinstance(options, SinkOptions):
        return Encoder(sink.encoding())
    chain = Chain(options)
    claims = _claim_store(options)
    store = _schema_store(options, context)
    framing = None if store is None else _framing(job, context, sink, store, chain)
    return Encoder(
        sink.encoding(),
        framing=framing,
        chain=chain,
        topic_of=sink.topic_of,
        options=options,
        claims=claims,
    )


def check_options(options: SinkOptions) -> None:
    """Refuse what `encoder_of` would refuse of the options that every sink has; connect to nothing.

    Raises:
        ConfigError: with what is wrong.

    """
    problems: list[Problem] = []
    checks: Sequence[tuple[Mapping[str, str], Callable[[SinkOptions], object]]] = (
        ({**options.transforms_options, **options.predicates_options}, Chain),
        (options.large_store_options, _claims),
        (options.schema_store_options, _schemas),
    )
    for given, check in checks:
        if any(map(is_reference, given.values())):
            continue  # What they stand for is known where the job starts.
        try:
            check(options)
        except ConfigError as error:
            problems += error.problems
        except MissingRequirementError:  # So is what is installed.
            continue
    if problems:
        raise ConfigError(problems)


def written_paths(config: object) -> Iterator[tuple[str, str]]:
    """Yield key and path of each option of a sink's *config*, and of its stores, that writes."""
    for key, (field, declared) in declared_options(type(config)).items():
        path = getattr(config, field.name)
        if declared.writes and isinstance(path, str):
            yield key, path
    if isinstance(config, SinkOptions):
        for prefix, store in ((_CLAIMS_KEY, _claims(config)), (_KEY, _schemas(config))):
            if store is not None:
                yield from ((f"{prefix}.{key}", path) for key, path in written_paths(store[1]))


def _claim_store(options: SinkOptions) -> ClaimStore | None:
    found = _claims(options)
    return None if found is None else found[0](found[1])


def _claims(options: SinkOptions) -> tuple[type[ClaimStore], object] | None:
    """Return the claim store, if one is needed, and its configuration."""
    policies = {options.large_policy, *options.large_policies.values()}
    if "claim-check" not in policies:
        return None
    plugin: type[ClaimStore] = load("claim_stores", options.large_store, key=_CLAIMS_KEY)
    return plugin, _parsed(_CLAIMS_KEY, plugin.config_class, options.large_store_options)


def _schema_store(options: SinkOptions, context: Context) -> SchemaStore | None:
    """Return the schema store that *options* name, connected to nothing; or None.

    Raises:
        ConfigError: there is no such store, its options are wrong, or it gives no numbers for the
            framing asked for.

    """
    found = _schemas(options)
    return None if found is None else found[0](found[1], context)


def _schemas(options: SinkOptions) -> tuple[type[SchemaStore], object] | None:
    """Return the schema store, if one is named, and its configuration."""
    if options.schema_store is None:
        return None
    plugin: type[SchemaStore] = load("schema_stores", options.schema_store, key=_KEY)
    if options.schema_framing != "none" and not plugin.numbered:
        found = f"needs a store that numbers schemas, found schema.store: {options.schema_store}"
        hint = "give schema.store: registry, or leave schema.framing out: the header schemaId names"
        raise ConfigError([Problem("schema.framing", found, f"{hint} each schema")])
    return plugin, _parsed(_KEY, plugin.config_class, options.schema_store_options)


def _parsed(prefix: str, config_class: type, given: Mapping[str, str]) -> object:
    """Check options that stand after *prefix*."""
    own = {key.removeprefix(f"{prefix}."): value for key, value in given.items()}
    try:
        config: object = parse_config(config_class, own)
    except ConfigError as error:
        problems = [Problem(f"{prefix}.{p.key}", p.message, p.hint) for p in error.problems]
        raise ConfigError(problems) from error
    return config


def _framing(job: Job, context: Context, sink: Sink, store: SchemaStore, chain: Chain) -> Framing:
    """Return what frames the messages of *job*, and publishes; begun on the data thread.

    Raises:
        ConfigError: nothing is in Avro.

    """
    options: SinkOptions = job.sink_config
    wanted = sink.encoding()
    formats = (wanted.key_codec or wanted.codec, wanted.codec)
    parts = [part for part, name in zip(PARTS, formats, strict=True) if name == "avro"]
    if not parts:
        raise ConfigError([Problem(_KEY, "only Avro has schemas", "give format: avro")])

    def topics_of(table: str) -> Sequence[str]:
        return chain.topics(table, sink.topic_of(table))

    publisher = Publisher(
        store,
        job.notes,
        job.name,
        strategy=options.schema_subjects,
        on_incompatible=options.schema_on_incompatible,
        topics_of=topics_of,
        is_shared=partial(_is_shared, topics_of),
        log=context.log,
    )
    return Framing(
        publisher,
        form=options.schema_framing,
        on_incompatible=options.schema_on_incompatible,
        parts=parts,
    )


def _is_shared(topics_of: Callable[[str], Sequence[str]], table: str, topic: str) -> bool:
    """Say whether records of a table beside *table* can be sent to *topic*.

    By the configuration alone: the answer is the same in each job, whatever tables it has.
    """
    return topic in topics_of(f"{table}{_OTHER}")
