"""Options that every sink may have, because the framework implements them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.plugins.config.options import option
from headrace.plugins.errors import ConfigError, Problem

FOR_EVER: Final = -1
DEAD_LETTERS_KEY: Final = "errors.deadletterqueue.topic.name"
LARGE_POLICIES: Final = ("dlq", "fail", "truncate", "chunk", "claim-check")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Base class for a sink's options, with those for the handling of errors.

    The keys that start with `errors.` are Kafka Connect's, except the budget.
    """

    errors_tolerance: str = option(
        "`all`: a record that cannot be processed is dead-lettered, the others continue. "
        "`none`: the split stops before it.",
        name="errors.tolerance",
        default="all",
        choices=("all", "none"),
    )
    errors_retry_timeout: int | None = option(
        "How long, in ms, to retry a call that may succeed later; -1: without limit. "
        "By default runtime.retry_seconds_max.",
        name="errors.retry.timeout",
        default=None,
        minimum=FOR_EVER,
    )
    errors_retry_delay_max: int = option(
        "The longest pause between two tries, in ms.",
        name="errors.retry.delay.max.ms",
        default=10_000,
        minimum=100,
    )
    errors_log_enable: bool = option(
        "Log the place and the reason of each dead letter.",
        name="errors.log.enable",
        default=False,
    )
    errors_log_include_messages: bool = option(
        "Kafka Connect's option to log the records themselves: only false is accepted.",
        name="errors.log.include.messages",
        default=False,
    )
    errors_topic: str | None = option(
        "A topic that gets a copy of each dead letter.",
        name=DEAD_LETTERS_KEY,
        default=None,
    )
    errors_topic_replication: int = option(
        "Replication factor of that topic when headrace creates it; -1: the brokers' default.",
        name="errors.deadletterqueue.topic.replication.factor",
        default=-1,
        minimum=-1,
    )
    errors_context: bool = option(
        "Describe the error in headers of the dead letter.",
        name="errors.deadletterqueue.context.headers.enable",
        default=True,
    )
    errors_budget_records: int | None = option(
        "A split stops when more than this number of records were dead-lettered within the window.",
        name="errors.budget.records",
        default=None,
        minimum=0,
    )
    errors_budget_seconds: float = option(
        "The window of the budget.", name="errors.budget.window.seconds", default=60.0, minimum=1
    )

    large_policy: str = option(
        "How to handle a value that is too large for a message: `dlq`, `fail` (the split stops), "
        "`truncate`, `chunk`, `claim-check`.",
        name="large.policy",
        default="dlq",
        choices=LARGE_POLICIES,
    )
    large_policies: Mapping[str, str] = option(
        "`large.policy.<keyspace>.<table>`: the same for one table.",
        keys_allowed=r"large\.policy\.[^.]+\.[^.]+",
    )
    large_bytes: int | None = option(
        "Values of more bytes are too large; by default, those above the sink's bound.",
        name="large.bytes",
        default=None,
        minimum=1_000,
    )
    large_store: str = option(
        "Where claim-check keeps values: `directory`, or a plugin's.",
        name="large.store",
        default="directory",
    )
    large_store_options: Mapping[str, str] = option(
        "`large.store.<option>`: the options of the claim store.",
        keys_allowed=r"large\.store\.[a-z][a-z._]*",
    )
    transforms: tuple[str, ...] = option(
        "Names of transforms, in the order in which they are applied.", default=()
    )
    transforms_options: Mapping[str, str] = option(
        "`transforms.<name>.type`, `.predicate`, `.negate`, and the options of its type.",
        keys_allowed=r"transforms\.[^.]+\..+",
    )
    predicates: tuple[str, ...] = option("Names of predicates.", default=())
    predicates_options: Mapping[str, str] = option(
        "`predicates.<name>.type`, and the options of its type.",
        keys_allowed=r"predicates\.[^.]+\..+",
    )
    schema_store: str | None = option(
        "Where the schemas of messages are published: `registry`, `file`, `topic`, or a plugin's.",
        name="schema.store",
        default=None,
    )
    schema_store_options: Mapping[str, str] = option(
        "`schema.store.<option>`: the options of the schema store.",
        keys_allowed=r"schema\.store\.[a-z][a-z._]*",
    )
    schema_framing: str = option(
        "How messages name their schemas in the store: `none` (the header schemaId does), "
        "`confluent` (in five bytes before key and value), `confluent-headers`.",
        name="schema.framing",
        default="none",
        choices=("none", "confluent", "confluent-headers"),
    )
    schema_subjects: str | None = option(
        "How subjects are named. By default TopicNameStrategy where a topic is one table's, and "
        "TopicRecordNameStrategy where other tables can have it, too.",
        name="subject.name.strategy",
        default=None,
        choices=("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"),
    )
    schema_on_incompatible: str = option(
        "When the store refuses a table's new schema: `stop` the split, dead-letter its "
        "records (`dlq`), or publish it under a `new_subject`.",
        name="schema.on.incompatible",
        default="stop",
        choices=("stop", "dlq", "new_subject"),
    )

    def __post_init__(self) -> None:
        """Reject options that would log a row's values, or need a store without one."""
        wrong = [
            Problem(key, f"expected one of {', '.join(LARGE_POLICIES)}, found {policy!r}")
            for key, policy in self.large_policies.items()
            if policy not in LARGE_POLICIES
        ]
        if wrong:
            raise ConfigError(wrong)
        if self.schema_store is None:
            hint = "give schema.store: registry, and schema.store.url"
            framed = ["schema.framing"] if self.schema_framing != "none" else []
            wrong = [
                Problem(key, "needs a schema store, found no schema.store", hint)
                for key in (*framed, *self.schema_store_options)
            ]
            if wrong:
                raise ConfigError(wrong)
        if self.errors_log_include_messages:
            hint = "look at a record with: headrace dlq show"
            problem = Problem("errors.log.include.messages", "rows are never logged", hint)
            raise ConfigError([problem])

    def large_policy_of(self, table: str) -> str:
        """Return the policy for large values of *table*."""
        return self.large_policies.get(f"large.policy.{table}", self.large_policy)
