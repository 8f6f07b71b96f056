"""Generated files of docker/: Prometheus rules, each part's rights as Strimzi users, and the Helm chart's schema."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from connectors.kafka.topics import Grant, rights
from deploy.settings.application import Settings
from tools.reference.catalogue import schema_of

_RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "prometheus" / "headgate.rules.yaml"
_PREFIX = "headgate"

_TEXT, _FLAG = {"type": "string"}, {"type": "boolean"}

_RULE_HEAD = """\
# `make generate` writes it from deploy/monitoring/prometheus/headgate.rules.yaml.
"""
_USERS_HEAD = """\
# `make generate` writes it from the output of `headgate topics acls`: for each part, a user of the loop's own Kafka
# with exactly the rights that the part needs. Strimzi stores each password in a secret with the user's name; pass it
# to the part as HEADGATE_KAFKA__SASL__PASSWORD. Replace `loop` by your cluster's name. Before Strimzi 0.49, write
# v1beta2.
"""


def files() -> dict[str, str]:
    """Return the content of every file by its path under docker/."""
    return {
        "helm/files/headgate.rules.yaml": _RULE_HEAD + _RULES.read_text(encoding="utf-8"),
        "helm/values.schema.json": json.dumps(_chart_schema(), indent=1) + "\n",
        "strimzi-users.yaml": _USERS_HEAD + yaml.safe_dump_all(_users(), sort_keys=False, width=120),
    }


def _chart_schema() -> dict[str, Any]:
    """The schema of values.yaml: a mistyped setting is refused before anything is installed."""
    settings = schema_of(Settings)
    resources = {"type": "object", "properties": {"requests": {"type": "object"}, "limits": {"type": "object"}}}
    part = _closed(replicas={"type": "integer", "minimum": 0}, secret=_TEXT, resources=resources)
    port = {"type": "integer", "minimum": 1, "maximum": 65_535}
    values = _closed(
        image=_closed(repository=_TEXT, tag=_TEXT, digest=_TEXT, pullSecrets={"type": "array"}),
        parts=_closed(collect=part, decide=part, act=part, export=part),
        storage=_closed(size=_TEXT, className=_TEXT, accessModes={"type": "array", "items": _TEXT}),
        networkPolicy=_closed(enabled=_FLAG, egress={"type": "array", "items": _closed(port=port, endPort=port)}),
        prometheusOperator=_closed(enabled=_FLAG),
        **{"settings": settings, "global": {"type": "object"}},
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": settings.pop("$defs"), **values}


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _users() -> Iterator[dict[str, Any]]:
    for part, grants in rights().items():
        yield {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaUser",
            "metadata": {"name": f"headgate-{part}", "labels": {"strimzi.io/cluster": "loop"}},
            "spec": {
                "authentication": {"type": "scram-sha-512"},
                "authorization": {"type": "simple", "acls": [_acl(grant) for grant in grants]},
            },
        }


def _acl(grant: Grant) -> dict[str, Any]:
    resource = {
        "type": grant.resource.value,
        "name": f"{_PREFIX}.{grant.name}",
        "patternType": "prefix" if grant.is_prefix else "literal",
    }
    return {"resource": resource, "operations": list(grant.operations), "host": "*"}
