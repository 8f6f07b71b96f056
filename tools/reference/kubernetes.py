"""Generated files of docker/: Prometheus rules, users of Strimzi, and the schema of the Helm chart."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from connectors.kafka.topics import RUN_PARTS, Grant, rights_of
from deploy.settings.application import Settings
from tools.reference.catalogue import schema_of

_RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "prometheus" / "headgate.rules.yaml"

_TEXT, _FLAG, _LIST, _MAP = ({"type": each} for each in ("string", "boolean", "array", "object"))

_RULE_HEAD = """\
# `make generate` writes it from deploy/monitoring/prometheus/headgate.rules.yaml.
"""
_USERS_HEAD = """\
# `make generate` writes it from the output of `headgate topics acls`. Users of the loop's own Kafka: one for each part,
# with exactly the rights that the part needs; headgate-command is for people (`headgate pause`, `headgate switch`).
# Users of the watched cluster: one reads, the other one sets quotas. Replace `loop` and `payments` by your clusters'
# names. Strimzi stores the password of each user in a secret with the user's name, below the key `password`;
# helm/examples/strimzi.yaml passes them to the parts. Before Strimzi 0.49, write v1beta2.
"""
_USERS = (*RUN_PARTS, "topics", "command")

_WATCHED: dict[str, list[dict[str, Any]]] = {
    "watch": [
        {"resource": {"type": "cluster"}, "operations": ["Describe"]},
        {"resource": {"type": "topic", "name": "*"}, "operations": ["Describe"]},
    ],
    "throttle": [{"resource": {"type": "cluster"}, "operations": ["Describe", "DescribeConfigs", "AlterConfigs"]}],
}
"""Rights on a watched cluster: docs/managed-kafka.md."""


def files() -> dict[str, str]:
    """Return the content of every file by its path under docker/."""
    return {
        "helm/files/headgate.rules.yaml": _RULE_HEAD + _RULES.read_text(encoding="utf-8"),
        "helm/values.schema.json": json.dumps(_chart_schema(), indent=1) + "\n",
        "strimzi-users.yaml": _USERS_HEAD + yaml.safe_dump_all(_users(), sort_keys=False, width=120),
    }


def _chart_schema() -> dict[str, Any]:
    """The schema of values.yaml: a mistyped setting of a map is refused before anything is installed."""
    settings = schema_of(Settings)
    port = {"type": "integer", "minimum": 1, "maximum": 65_535}
    own = {**_of_a_pod(), "resources": _MAP}
    workload = _closed(replicas={"type": "integer", "minimum": 0}, **own)
    definitions = {**settings.pop("$defs"), "Workload": workload}
    values = _closed(
        image=_closed(repository=_TEXT, tag=_TEXT, digest=_TEXT),
        imagePullSecrets=_LIST,
        serviceAccount=_closed(name=_TEXT, automountToken=_FLAG),
        parts=_closed(**{part: {"$ref": "#/$defs/Workload"} for part in RUN_PARTS}),
        jobs=_closed(check=_closed(enabled=_FLAG, resources=_MAP), topics=_closed(enabled=_FLAG, **own)),
        storage=_closed(size=_TEXT, className=_TEXT, accessModes={"type": "array", "items": _TEXT}),
        ingress=_closed(enabled=_FLAG, className=_TEXT, annotations=_MAP, host=_TEXT, tlsSecret=_TEXT),
        networkPolicy=_closed(enabled=_FLAG, egress={"type": "array", "items": _closed(port=port, endPort=port)}),
        prometheusOperator=_closed(enabled=_FLAG, labels=_MAP, endpoint=_MAP),
        **_of_a_pod(),
        # Conditions in place of alternatives, so that a mistake in a map is the only one that Helm names.
        settings={"if": _MAP, "then": settings, "else": {"type": ["string", "null"]}},
        **{"global": _MAP},
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": definitions, **values}


def _of_a_pod() -> dict[str, Any]:
    """What values name in Kubernetes' own words; Kubernetes checks what is in it."""
    lists = ("env", "envFrom", "volumes", "volumeMounts", "tolerations")
    return {**dict.fromkeys(lists, _LIST), **dict.fromkeys(("podAnnotations", "nodeSelector", "affinity"), _MAP)}


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _users() -> Iterator[dict[str, Any]]:
    for part in _USERS:
        yield _user(part, "loop", _acls(rights_of(part)))
    for name, acls in _WATCHED.items():
        yield _user(name, "payments", acls)


def _user(name: str, cluster: str, acls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": f"headgate-{name}", "labels": {"strimzi.io/cluster": cluster}},
        "spec": {"authentication": {"type": "scram-sha-512"}, "authorization": {"type": "simple", "acls": acls}},
    }


def _acls(grants: Iterable[Grant]) -> list[dict[str, Any]]:
    """Return one for each resource, with all operations."""
    acls: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for each in grants:
        pattern = "prefix" if each.is_prefix else "literal"
        resource = {"type": each.resource, "name": f"headgate.{each.name}", "patternType": pattern}
        place = (each.resource, each.name, each.is_prefix)
        acls.setdefault(place, {"resource": resource, "operations": []})["operations"] += each.operations
    return list(acls.values())
