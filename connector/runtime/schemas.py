"""Makes encoder and schema store from a sink's options."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from headrace.connector.foundation.sink_stores import (
    SCHEMA_STORE_KEY,
    claim_store_of,
    schema_store_of,
)
from headrace.connector.serde import Encoder
from headrace.connector.serde.schemas.framing import Framing
from headrace.connector.serde.schemas.publishing import BY_TOPIC, PARTS, Publisher
from headrace.connector.serde.transforms.chain import Chain
from headrace.connector.stores.job import Job
from headrace.plugins import (
    ClaimStore,
    ConfigError,
    Context,
    MissingRequirementError,
    Origin,
    Problem,
    SchemaStore,
    Sink,
    SinkOptions,
    is_reference,
)

_OTHER: Final = "_other"  # Makes the name of another table.


def encoder_of(job: Job, context: Context, sink: Sink, origin: Origin) -> Encoder:
    """Return the encoder of the records of *job*, which publishes schemas; for one thread.

    *origin* is the origin schema of the records' source.

    Raises:
        ConfigError: the sink or the schema store cannot do what the options ask for.

    """
    options = job.sink_config
    if not isinstance(options, SinkOptions):
        return Encoder(sink.encoding(), origin)
    chain = Chain(options)
    claims = _claim_store(options)
    store = _schema_store(options, context)
    framing = None if store is None else _framing(job, context, sink, store, chain)
    return Encoder(
        sink.encoding(),
        origin,
        framing=framing,
        chain=chain,
        topic_of=sink.topic_of,
        options=options,
        claims=claims,
    )


def examined_store(
    job: Job, context: Context, sink: Sink, tables: Sequence[str]
) -> tuple[SchemaStore, Mapping[str, Sequence[str]]] | None:
    """Return the schema store of *job*, and its subjects, each with its *tables*.

    Subjects that are named after records are known only if they were published before. None if
    there is no store.
    """
    options = job.sink_config
    store = _schema_store(options, context) if isinstance(options, SinkOptions) else None
    if store is None:
        return None
    topics_of = partial(_topics_of, Chain(options), sink)
    found: dict[str, list[str]] = {}
    for table in tables:
        for topic in topics_of(table):
            is_shared = _is_shared(topics_of, table, topic)
            if options.schema_subjects == BY_TOPIC or not (options.schema_subjects or is_shared):
                for part in _avro_parts(sink):
                    found.setdefault(f"{topic}-{part}", []).append(table)
    return store, found


def check_options(options: SinkOptions) -> None:
    """Raise for common sink options that `encoder_of` would refuse; does not connect.

    Raises:
        ConfigError: it has the problems.

    """
    problems: list[Problem] = []
    checks: Sequence[tuple[Mapping[str, str], Callable[[SinkOptions], object]]] = (
        ({**options.transforms_options, **options.predicates_options}, Chain),
        (options.large_store_options, claim_store_of),
        (options.schema_store_options, schema_store_of),
    )
    for given, check in checks:
        if any(map(is_reference, given.values())):
            continue  # Their targets are known when the job starts.
        try:
            check(options)
        except ConfigError as error:
            problems += error.problems
        except MissingRequirementError:  # So are the installed packages.
            continue
    if problems:
        raise ConfigError(problems)


def _claim_store(options: SinkOptions) -> ClaimStore | None:
    found = claim_store_of(options)
    return None if found is None else found[0](found[1])


def _schema_store(options: SinkOptions, context: Context) -> SchemaStore | None:
    """Return the schema store that *options* name, unconnected; or None.

    Raises:
        ConfigError: the store is unknown, its options are wrong, or it does not number schemas, as
            the framing requires.

    """
    found = schema_store_of(options)
    return None if found is None else found[0](found[1], context)


def _framing(job: Job, context: Context, sink: Sink, store: SchemaStore, chain: Chain) -> Framing:
    """Return the framing of the messages of *job*, which publishes; started on the data thread.

    Raises:
        ConfigError: nothing is in Avro.

    """
    options: SinkOptions = job.sink_config
    parts = _avro_parts(sink)
    if not parts:
        raise ConfigError([Problem(SCHEMA_STORE_KEY, "only Avro has schemas", "give format: avro")])
    topics_of = partial(_topics_of, chain, sink)
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


def _avro_parts(sink: Sink) -> Sequence[str]:
    """Return the parts of a message that are in Avro: only they have schemas."""
    wanted = sink.encoding()
    formats = (wanted.key_codec or wanted.codec, wanted.codec)
    return [part for part, name in zip(PARTS, formats, strict=True) if name == "avro"]


def _topics_of(chain: Chain, sink: Sink, table: str) -> Sequence[str]:
    """Return the possible topics of records of *table*."""
    return chain.topics(table, sink.topic_of(table))


def _is_shared(topics_of: Callable[[str], Sequence[str]], table: str, topic: str) -> bool:
    """Return whether records of a table other than *table* can be sent to *topic*.

    Depends only on the configuration: the result is the same in each job, with any tables.
    """
    return topic in topics_of(f"{table}{_OTHER}")
