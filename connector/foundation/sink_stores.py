"""The stores for claims and schemas that a sink's options name, and the paths that they write."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace.plugins import (
    ClaimStore,
    ConfigError,
    Problem,
    SchemaStore,
    SinkOptions,
    declared_options,
    parse_config,
)
from headrace.plugins.discovery import load

SCHEMA_STORE_KEY: Final = "schema.store"
CLAIM_STORE_KEY: Final = "large.store"
_DEFAULT_STORE: Final = "directory"


def confined_paths(config: object) -> Iterator[tuple[str, str]]:
    """Yield key and path of each option of *config* and its stores that is written or read.

    A config with `no_file` set neither writes nor reads a file.
    """
    no_file = getattr(config, "no_file", False)
    for key, (field, declared) in declared_options(type(config)).items():
        path = getattr(config, field.name)
        if (declared.writes or declared.reads) and isinstance(path, str) and not no_file:
            yield key, path
    if isinstance(config, SinkOptions):
        for prefix, store in (
            (CLAIM_STORE_KEY, claim_store_of(config)),
            (SCHEMA_STORE_KEY, schema_store_of(config)),
        ):
            if store is not None:
                yield from ((f"{prefix}.{key}", path) for key, path in confined_paths(store[1]))


def claim_store_of(options: SinkOptions) -> tuple[type[ClaimStore], object] | None:
    """Return the claim store, if one is needed, and its configuration."""
    policies = {options.large_policy, *options.large_policies.values()}
    if "claim-check" not in policies:
        return None
    return _claim_store(options)


def read_claim_store_of(options: SinkOptions, folder: Path) -> ClaimStore | None:
    """Return the claim store as consumers read it; None if *options* name none.

    Its relative paths are relative to *folder*. The policies of the sink need not be known.
    """
    made = claim_store_of(options)
    if made is None:
        if options.large_store == _DEFAULT_STORE and not options.large_store_options:
            return None
        made = _claim_store(options)
    plugin, config = made
    paths = {
        field.name: str(folder / path)
        for field, declared in declared_options(type(config)).values()
        if declared.writes and isinstance(path := getattr(config, field.name), str)
    }
    return plugin(replace(config, **paths))  # type: ignore[type-var]  # A dataclass.


def _claim_store(options: SinkOptions) -> tuple[type[ClaimStore], object]:
    plugin: type[ClaimStore] = load("claim_stores", options.large_store, key=CLAIM_STORE_KEY)
    return plugin, parsed_store(CLAIM_STORE_KEY, plugin.config_class, options.large_store_options)


def schema_store_of(options: SinkOptions) -> tuple[type[SchemaStore], object] | None:
    """Return the schema store, if one is named, and its configuration."""
    if options.schema_store is None:
        return None
    plugin: type[SchemaStore] = load("schema_stores", options.schema_store, key=SCHEMA_STORE_KEY)
    if options.schema_framing != "none" and not plugin.numbered:
        found = f"needs a store that numbers schemas, found schema.store: {options.schema_store}"
        hint = "give schema.store: registry, or leave schema.framing out: the header schemaId names"
        raise ConfigError([Problem("schema.framing", found, f"{hint} each schema")])
    return plugin, parsed_store(SCHEMA_STORE_KEY, plugin.config_class, options.schema_store_options)


def parsed_store(prefix: str, config_class: type, given: Mapping[str, str]) -> object:
    """Check options that stand after *prefix*."""
    own = {key.removeprefix(f"{prefix}."): value for key, value in given.items()}
    try:
        config: object = parse_config(config_class, own)
    except ConfigError as error:
        problems = [Problem(f"{prefix}.{p.key}", p.message, p.hint) for p in error.problems]
        raise ConfigError(problems) from error
    return config
