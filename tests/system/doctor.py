"""The doctor's answers about real servers, and what its lines do when they are carried out."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from deploy.doctor import Result, all_probes, ask_all
from deploy.processes.parts import Connections
from deploy.settings.application import Settings
from tests.system.waiting import DEADLINE_SECONDS

_CLUSTER = "kafka-cluster"
"""Kafka's name of the resource."""


def examined(settings: Mapping[str, Any], *parts: str) -> dict[str, Result]:
    """The doctor's answers about each system, by `system, question`, without those about this machine."""
    given = Settings(**settings)
    with Connections(given) as connections:
        answers = ask_all(list(all_probes(given, parts, connections)), limit_seconds=DEADLINE_SECONDS)
    return {f"{each.system}, {each.asked}": each for each in answers if each.system != "this machine"}


def carry_out(lines: Iterable[str], servers: str) -> None:
    """Grant the rights that lines of `kafka-acls.sh --add` name."""
    bindings = list(dict.fromkeys(binding for line in lines for binding in _bindings(line)))  # once each
    client = AdminClient({"bootstrap.servers": servers})  # kept, as its futures end with it
    for future in client.create_acls(bindings).values():
        future.result(timeout=DEADLINE_SECONDS)


def _bindings(line: str) -> Iterable[AclBinding]:
    found = re.fullmatch(
        r"kafka-acls\.sh --bootstrap-server \S+ --add --allow-principal (?P<who>\S+)"
        r"(?P<operations>(?: --operation \w+)+)"
        r"(?: --(?P<kind>topic|group) (?P<name>\S+)| --cluster)(?P<prefixed> --resource-pattern-type prefixed)?",
        line,
    )
    assert found is not None, line
    kind = ResourceType.BROKER if found["kind"] is None else ResourceType[found["kind"].upper()]
    pattern = ResourcePatternType.PREFIXED if found["prefixed"] else ResourcePatternType.LITERAL
    for operation in re.findall(r"--operation (\w+)", found["operations"]):
        constant = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
        allowed = (found["who"], "*", AclOperation[constant], AclPermissionType.ALLOW)
        yield AclBinding(kind, found["name"] or _CLUSTER, pattern, *allowed)
