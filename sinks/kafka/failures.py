"""Maps librdkafka's errors to the framework's; the errors that the sink raises itself."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError

from headrace.plugins import Disposition, FatalError, MissingRequirementError, RetriableError
from headrace.plugins.hosts import dialled_problem

_REJECT: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._BAD_MSG,  # noqa: SLF001 (librdkafka's own errors have an underscore)
    }
)
_FATAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)


# Codes for a topic that no longer exists.
GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)


# Codes for a missing answer.
UNANSWERED: Final = frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    }
)


# Codes of a leader election: another broker will answer.
MOVING: Final = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


# Codes of missing authorization.
REFUSALS: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


TRANSACTION_REFUSALS: Final = frozenset(
    {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


def disposition(error: KafkaError) -> Disposition:
    """Return the disposition of a record that failed with *error*; unknown errors retry (R11)."""
    if error.code() in _REJECT:
        return Disposition.REJECT
    if error.code() in _FATAL:
        return Disposition.FATAL
    return Disposition.RETRY


def code_of(error: KafkaError) -> str:
    """Return a stable name: `kafka_msg_size_too_large`, `kafka_transport`."""
    return "kafka_" + error.name().strip("_").lower()


# Codes of permanent rejections. librdkafka reports one for all records of a batch; it does not say
# which record caused it.
REFUSED: Final = frozenset(code_of(KafkaError(code)) for code in _REJECT)


def hint_of(error: KafkaError | None) -> str:
    """Return a hint for when no broker answered and *error* was the last error."""
    name = error.name() if error else ""
    if "AUTH" in name:
        return "check security.protocol, sasl.mechanism, sasl.username and sasl.password"
    if "SSL" in name:
        return "check security.protocol and ssl.ca.location"
    if "RESOLVE" in name:
        return "the name in bootstrap.servers is not known here"
    return "start the broker, or correct bootstrap.servers"


class BrokerUnreachableError(MissingRequirementError):
    """No broker answered in time; nothing was sent, so a later restart loses nothing."""

    code = "kafka_unreachable"


class EgressError(MissingRequirementError):
    """A broker's name resolves to an address that headrace must not contact."""

    code = "kafka_egress"


class TopicMissingError(MissingRequirementError):
    """The cluster answers but does not have the topic, or hides it from this user."""

    code = "kafka_topic"


class OffsetsTopicError(MissingRequirementError):
    """The topic of states for exactly once is missing, not authorized, or not compacted."""

    code = "kafka_offsets_topic"


class TransactionsRefusedError(MissingRequirementError):
    """The brokers do not allow transactions to this user, or not with this timeout."""

    code = "kafka_transactions"


class StateTooLargeError(FatalError):
    """A piece of a split's state does not fit into a message."""

    code = "kafka_state_too_large"


class QueueFullError(RetriableError):
    """The broker accepts records more slowly than they are read."""

    code = "kafka_queue_full"


class WriterClosedError(FatalError):
    """A delivery was submitted after `close`."""

    code = "kafka_closed"


def check_hosts(hosts: Iterable[str]) -> None:
    """Look up each of *hosts*, which blocks. Raises EgressError for the first forbidden one."""
    for host in dict.fromkeys(hosts):
        if problem := dialled_problem(host):
            hint = "addresses of the link, of groups and of a machine's metadata are not reached"
            raise EgressError(f"{host} {problem}", place="bootstrap.servers", hint=hint)
