"""From a sink's options to where its schemas are published."""

from typing import Final

from headrace.connector.job import Job
from headrace.connector.serde import Encoder
from headrace.connector.serde.framing import Framing
from headrace.connector.serde.publishing import PARTS, Publisher
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    ConfigError,
    Context,
    Problem,
    SchemaStore,
    Sink,
    SinkOptions,
    parse_config,
)
from headrace.plugins.discovery import load

_KEY: Final = "schema.store"


def encoder_of(job: Job, context: Context, sink: Sink) -> Encoder:
    """Return what encodes the records of *job*, and publishes their schemas; for one thread.

    Raises:
        ConfigError: what the sink or the schema store is asked for cannot be.

    """
    store = _schema_store(job, context)
    framing = None if store is None else _framing(job, context, sink, store)
    options = job.sink_config
    chain = Chain(options) if isinstance(options, SinkOptions) else None
    return Encoder(sink.encoding(), framing, chain, sink.topic_of)


def _schema_store(job: Job, context: Context) -> SchemaStore | None:
    """Return the schema store that *job* names, connected to nothing; or None.

    Raises:
        ConfigError: there is no such store, its options are wrong, or nothing is in Avro.

    """
    options = job.sink_config
    if not isinstance(options, SinkOptions) or options.schema_store is None:
        return None
    plugin: type[SchemaStore] = load("schema_stores", options.schema_store)
    given = {k.removeprefix(f"{_KEY}."): v for k, v in options.schema_store_options.items()}
    try:
        config: object = parse_config(plugin.config_class, given)
    except ConfigError as error:
        problems = [Problem(f"{_KEY}.{p.key}", p.message, p.hint) for p in error.problems]
        raise ConfigError(problems) from error
    return plugin(config, context)


def _framing(job: Job, context: Context, sink: Sink, store: SchemaStore) -> Framing:
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
    publisher = Publisher(
        store,
        job.state,
        job.name,
        strategy=options.schema_subjects,
        on_incompatible=options.schema_on_incompatible,
        topic_of=sink.topic_of,
        log=context.log,
    )
    return Framing(
        publisher,
        form=options.schema_framing,
        on_incompatible=options.schema_on_incompatible,
        parts=parts,
    )
