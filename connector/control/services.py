"""Service configurations of CEP-44's Sidecar: `cdc`, `kafka` and `schema_store`.

Together they define one job that publishes every table with CDC. Only this module defines what the
Sidecar's keys mean here. It refuses a key that it cannot honour, and ignores none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.plugins.search import sink_of_scheme
from headrace.connector.foundation.secrets import secret_problems
from headrace.connector.stores.target_state import FORK_MARK, JOB_BYTES_MAX
from headrace.plugins import ConfigError, Problem, ServiceSettings, option, parse_config

SERVICES: Final = ("cdc", "kafka", "schema_store")
ROUTE: Final = "~services"  # The name of their route; no source can have this name.
_PLACEHOLDERS: Final = {
    "STATIC": (),
    "KEYSPACE": ("{keyspace}",),
    "TABLE": ("{table}",),
    "KEYSPACETABLE": ("{keyspace}", "{table}"),
}
# The Sidecar's configuration must have them; `format` and `key.format` replace them here.
_SERIALIZERS: Final = ("key.serializer", "value.serializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcService:
    """The keys of the service `cdc`."""

    cdc_enabled: bool = option("Whether changes are published.", default=True)
    topic: str | None = option("The topic; %s is the keyspace, or the table.", default=None)
    topic_format_type: str = option(
        "What replaces %s in `topic`.", default="STATIC", choices=tuple(_PLACEHOLDERS)
    )
    jobid: str = option(
        "The name of the job; another name starts with an empty state.", default="sidecar"
    )
    datacenter: str | None = option("Only nodes of this data centre are read.", default=None)
    data_center: str | None = option("The same as `datacenter`.", default=None)
    env: str | None = option(
        "A name for the environment: the id of the Kafka client.", default=None
    )
    watermark_seconds: int = option(
        "A mutation whose copies are missing for this time expires.", default=259_200, minimum=1
    )
    micro_batch_delay_millis: int = option(
        "The shortest time between the starts of two passes.",
        default=1_000,
        minimum=1,
        maximum=60_000,
    )
    max_commit_logs: int = option("Segments of one log started in a pass.", default=4, minimum=1)
    max_watermarker_size: int = option(
        "Records of mutations kept, over all splits.", default=400_000, minimum=1_000
    )
    persist_state: bool = option("The state is always kept: only true is possible.", default=True)
    persist_delay_millis: int = option(
        "The longest time between commits of what is settled.", default=1_000, minimum=0
    )
    log_only: bool = option("Read everything, and send nothing.", default=False)
    fail_kafka_errors: bool = option(
        "No change is skipped because Kafka fails: only true is possible.", default=True
    )
    fail_kafka_too_large_errors: bool = option(
        "Stop at a record that is too large, instead of dead-lettering it.", default=False
    )

    def __post_init__(self) -> None:
        """Raise for options that would lose changes, and for contradictory options."""
        problems = []
        if not self.persist_state:
            problems.append(Problem("persist_state", "cannot be false", "the state is the proof"))
        if not self.fail_kafka_errors:
            hint = "changes would be lost silently; DELETE the configuration to stop"
            problems.append(Problem("fail_kafka_errors", "cannot be false", hint))
        if self.datacenter and self.data_center and self.datacenter != self.data_center:
            problems.append(Problem("data_center", "differs from datacenter"))
        holes = (self.topic or "").count("%s")
        wanted = len(_PLACEHOLDERS[self.topic_format_type])
        if self.topic is not None and holes != wanted:
            found = f"{self.topic_format_type} takes {wanted} times %s, found {holes}"
            problems.append(Problem("topic", found))
        is_long = len(quote(self.jobid)) > JOB_BYTES_MAX
        if is_long or not self.jobid.strip() or FORK_MARK in self.jobid:
            problems.append(Problem("jobid", "is not a job name"))
        if problems:
            raise ConfigError(problems)

    @property
    def topic_pattern(self) -> str | None:
        """The topic in the syntax of the Kafka sink."""
        topic = self.topic
        for placeholder in _PLACEHOLDERS[self.topic_format_type]:
            topic = topic.replace("%s", placeholder, 1) if topic is not None else None
        return topic


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """The job that the services define together: its name and the sections of its file."""

    job: str
    enabled: bool
    sink: Mapping[str, str] = field(repr=False)
    settings: ServiceSettings
    runtime: Mapping[str, Any]  # Any: options of the runtime.


def service_job(configs: Mapping[str, Mapping[str, str]]) -> ServiceJob:
    """Return the job that *configs*, by service, define.

    Raises:
        ConfigError: `cdc` or `kafka` is missing, or they do not fit together.

    """
    missing = [name for name in ("cdc", "kafka") if name not in configs]
    if missing:
        raise ConfigError([Problem(name, "has no configuration yet") for name in missing])
    cdc = parse_config(CdcService, configs["cdc"])
    runtime: dict[str, Any] = {
        "tick_min_ms": cdc.micro_batch_delay_millis,
        "commit_max_seconds": cdc.persist_delay_millis / 1_000,
    }
    settings = ServiceSettings(
        watermark_seconds=cdc.watermark_seconds,
        max_commit_logs=cdc.max_commit_logs,
        max_watermarker_size=cdc.max_watermarker_size,
        datacenter=cdc.datacenter or cdc.data_center,
    )
    store = configs.get("schema_store", {})
    sink = {"plugin": "null"} if cdc.log_only else _kafka_sink(cdc, {**configs["kafka"], **store})
    return ServiceJob(cdc.jobid, cdc.cdc_enabled, sink, settings, runtime)


def check_service(
    name: str, config: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> None:
    """Check the configuration of one service, also against the known *others*.

    Raises:
        NotFoundError: the service does not exist.
        ConfigError: it has every key that is wrong.

    """
    check = _CHECKS.get(name)
    if check is None:
        raise NotFoundError("service", f"service {name[:48]!r} does not exist", ", ".join(SERVICES))
    check(config)
    whole = {**others, name: config}
    if "cdc" in whole and "kafka" in whole:
        service_job(whole)


def _kafka_sink(cdc: CdcService, given: Mapping[str, str]) -> dict[str, str]:
    plugin, sink = sink_of_scheme("kafka")
    options = {k: v for k, v in given.items() if k not in _SERIALIZERS}
    if cdc.topic_pattern is not None:
        options["topic"] = cdc.topic_pattern
    if cdc.fail_kafka_too_large_errors:
        options["errors.tolerance"] = "none"
    if cdc.env:
        options.setdefault("client.id", f"headrace-{cdc.env}")
    parse_config(sink.config_class, options)
    return {"plugin": plugin} | options


def _check_kafka(config: Mapping[str, str]) -> None:
    """Check options of the Kafka sink."""
    options = {k: v for k, v in config.items() if k not in _SERIALIZERS}
    plugin, sink = sink_of_scheme("kafka")
    problems = secret_problems(sink.config_class, options)
    try:
        parse_config(sink.config_class, {"topic": "x", **options}, name=plugin)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)


def _check_cdc(config: Mapping[str, str]) -> None:
    parse_config(CdcService, config)


def _check_schema_store(config: Mapping[str, str]) -> None:
    problems = [
        Problem(key, "is not an option of a schema store", "as in schema.store.url")
        for key in config
        if not key.startswith("schema.")
    ]
    _, sink = sink_of_scheme("kafka")
    problems += secret_problems(sink.config_class, config)
    try:
        parse_config(sink.config_class, {"topic": "x", "bootstrap.servers": "x:1", **config})
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, str]], None]]] = {
    "cdc": _check_cdc,
    "kafka": _check_kafka,
    "schema_store": _check_schema_store,
}
