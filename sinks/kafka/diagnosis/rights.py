"""The rights of this user to topics, transactional ids and groups, as far as brokers report them.

They report those to topics and groups. Those to transactional ids, and to a group without members
so far, are only in access lists (ACLs), which a user with the right to describe the cluster may
see.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs are incomplete.
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headrace.plugins import CheckResult, Finding

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECK: Final = "rights"
_PASSED, _FAILED = CheckResult.PASSED, CheckResult.FAILED
_WARNED, _UNKNOWN = CheckResult.WARNED, CheckResult.UNKNOWN
_ANY_USER: Final = "User:*"
_WORDS: Final = {
    ResourceType.GROUP: ("group", "--group"),
    ResourceType.TRANSACTIONAL_ID: ("transactional id", "--transactional-id"),
}
# A user with these rights to the cluster is a super user, or the brokers have no ACLs.
_EVERYTHING: Final = {AclOperation.ALTER, AclOperation.CLUSTER_ACTION}


class Rights:
    """Checks rights with an *admin* client, for a user such as `User:writer`; None if unknown."""

    def __init__(self, admin: AdminClient, user: str | None, seconds: float) -> None:
        """Query nothing yet; *seconds* is the timeout of each request."""
        self._admin = admin
        self._user = user
        self._seconds = seconds

    def of_topic(self, topic: str, *needed: AclOperation) -> Finding:
        """Return whether this user may perform *needed* on an existing topic."""
        try:
            found = self._asked_of_topic(topic).result(self._seconds).authorized_operations
        except (KafkaException, TimeoutError) as error:
            return Finding(CHECK, _UNKNOWN, f"{topic}: {reason(error)}")
        if found is None:
            return Finding(CHECK, _UNKNOWN, f"{topic}: the brokers do not say who may use it")
        missing = [each.name for each in needed if each not in found]
        verbs = " and ".join(each.name.lower() for each in needed)
        if not missing:
            return Finding(CHECK, _PASSED, f"this user may {verbs} topic {topic}")
        said = f"this user may not {' and '.join(missing).lower()} topic {topic}"
        return Finding(CHECK, _FAILED, said, f"grant it {' and '.join(missing)} on the topic")

    def of_group(self, group: str) -> Finding:
        """Return whether this user may read as a member of *group*."""
        asked = self._admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=self._seconds
        )
        try:
            found = asked[group].result(self._seconds).authorized_operations
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                said = f"this user may not see group {group}"
                return Finding(CHECK, _FAILED, said, self._grant(ResourceType.GROUP, group))
            found = None
        except TimeoutError:
            found = None
        if found is None:
            return self._by_lists(ResourceType.GROUP, group, AclOperation.READ)
        if AclOperation.READ in found:
            return Finding(CHECK, _PASSED, f"this user may read in group {group}")
        said = f"this user may not read in group {group}"
        return Finding(CHECK, _FAILED, said, self._grant(ResourceType.GROUP, group))

    def of_transactional_id(self, name: str, prefix: str) -> Finding:
        """Return whether this user may write with the id *name*, one of those with *prefix*."""
        return self._by_lists(ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE, prefix)

    def _asked_of_topic(self, topic: str) -> "Future[Any]":  # Any: its stubs are untyped.
        asked = self._admin.describe_topics(
            TopicCollection([topic]),
            include_authorized_operations=True,
            request_timeout=self._seconds,
        )
        return asked[topic]

    def _by_lists(
        self, kind: ResourceType, name: str, needed: AclOperation, prefix: str = ""
    ) -> Finding:
        """Return the result of the ACLs of *kind* that match *name*."""
        said, grant = f"{_WORDS[kind][0]} {name}", self._grant(kind, prefix or name, prefix)
        try:
            rules = self._rules()
            if _EVERYTHING <= rules:
                why = "this user may do everything to the cluster"
                return Finding(CHECK, _PASSED, f"{said}: {why}")
            if AclOperation.DESCRIBE not in rules:  # The ACLs would be empty.
                why = "this user may not see access lists"
                return Finding(CHECK, _UNKNOWN, f"{said}: {why}", f"if it may not yet: {grant}")
            matching = AclBindingFilter(
                *(kind, name, ResourcePatternType.MATCH),
                *(None, None),  # type: ignore[arg-type]  # None means any.
                *(AclOperation.ANY, AclPermissionType.ANY),
            )
            asked = self._admin.describe_acls(matching, request_timeout=self._seconds)
            result, why = verdict(asked.result(self._seconds), self._user, needed)
        except (KafkaException, TimeoutError) as error:
            return Finding(CHECK, _UNKNOWN, f"{said}: {reason(error)}")
        return Finding(CHECK, result, f"{said}: {why}", grant)

    def _rules(self) -> set[AclOperation]:
        """Return the operations on the cluster that this user may perform; perhaps none."""
        asked = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=self._seconds
        )
        return {*(asked.result(self._seconds).authorized_operations or ())}

    def _grant(self, kind: ResourceType, name: str, prefix: str = "") -> str:
        operations = "--operation Read" if kind is ResourceType.GROUP else "--operation Write"
        pattern = " --resource-pattern-type prefixed" if prefix else ""
        return (
            f"kafka-acls --add --allow-principal {self._user or 'User:…'} "
            f"{operations} --operation Describe {_WORDS[kind][1]} '{name}'{pattern}"
        )


def verdict(
    lists: Sequence[AclBinding], user: str | None, needed: AclOperation
) -> tuple[CheckResult, str]:
    """Return whether *lists*, the ACLs of one resource, allow *user* to perform *needed*."""
    covering = [each for each in lists if each.operation in (needed, AclOperation.ALL)]
    ours = [each for each in covering if user is None or each.principal in (user, _ANY_USER)]
    verb = needed.name.lower()
    allowed = [e.principal for e in ours if e.permission_type is AclPermissionType.ALLOW]
    if user is None:
        who = ", ".join(dict.fromkeys(allowed)) or "nobody"
        return _UNKNOWN, f"access lists let {who} {verb}; which user this is, only the brokers know"
    if any(each.permission_type is AclPermissionType.DENY for each in ours):
        return _FAILED, f"an access list forbids {user} to {verb}"
    if allowed:
        return _PASSED, f"{user} may {verb}"
    if lists:
        return _FAILED, f"no access list lets {user} {verb}"
    said = "no access list is about it"
    return _WARNED, f"{said}: {user} may {verb} only where brokers then allow everyone"


def user_of(options: Mapping[str, Any]) -> str | None:  # Any: values of options of librdkafka.
    """Return the principal of a client with these options; None if the brokers determine it."""
    mechanism = str(options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "")
    name = options.get("sasl.username")
    named = mechanism.upper() == "PLAIN" or mechanism.upper().startswith("SCRAM-")
    return f"User:{name}" if named and name else None


def reason(error: KafkaException | TimeoutError) -> str:
    """Return why a request failed."""
    return str(error.args[0].str()) if error.args else "no answer in time"
