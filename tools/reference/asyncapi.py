"""docs/reference/asyncapi.yaml: all topics with their writers and readers, as AsyncAPI 3.0."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import yaml

from connectors.kafka.topics import TopicSettings, plan
from policies.observations import ActuatorEvent
from policies.registry import AUDIT, REPORTS
from policies.wire import CONTENT_TYPE
from tools.reference.catalogue import EventKind, catalogue, examples

_HEAD = "# `make generate` writes it from the models in the code; `make check` fails when it is stale.\n"
_BINDING = "0.5.0"
_CONTENT_TYPE = CONTENT_TYPE.partition(";")[0]
_LISTS = ("cleanup.policy",)
_CONFIGS = ("cleanup.policy", "retention.ms", "delete.retention.ms", "max.message.bytes")
"""The properties of a topic that the Kafka binding has."""


def asyncapi() -> str:
    """Return the whole document."""
    return _HEAD + yaml.safe_dump(document(), sort_keys=False, width=120, allow_unicode=True)


def document() -> dict[str, Any]:
    """Return the whole document as data."""
    kinds, shown = catalogue(), examples()
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for topic in dict.fromkeys([*(kind.topic for kind in kinds), REPORTS]):
        # The topic of reports has the last of each of the audit's reports.
        of_topic = [
            k
            for k in kinds
            if k.topic == topic or (topic == REPORTS and k.topic == AUDIT and issubclass(k.data, ActuatorEvent))
        ]
        channel, names = channel_name(topic), [message_name(kind) for kind in of_topic]
        channels[channel] = _channel(topic, names)
        writers = " and ".join(dict.fromkeys(kind.written_by for kind in of_topic))
        is_observed = of_topic[0].is_observed
        readers = "the query and the exporter" if is_observed else "actuators, the exporter, and your consumers"
        for action, summary in (("send", f"Written by {writers}."), ("receive", f"Read by {readers}.")):
            operations[f"{action}.{channel}"] = {
                "action": action,
                "summary": summary,
                "channel": {"$ref": f"#/channels/{channel}"},
                "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names],
            }
    server = {
        "host": "{bootstrap_servers}",
        "protocol": "kafka",
        "description": "The loop's own Kafka: `kafka.bootstrap_servers` of the settings.",
        "variables": {"bootstrap_servers": {"default": "localhost:9092"}},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headgate",
            "version": version("headgate"),
            "description": "Headgate's observations and decisions, each record a CloudEvent in structured JSON mode.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _CONTENT_TYPE,
        "servers": {"loop": server},
        "channels": channels,
        "operations": operations,
        "components": {"messages": {message_name(k): _message(k, shown.get(k.event_type)) for k in kinds}},
    }


def channel_name(topic: str) -> str:
    """Convert ``observed.log-dirs`` to ``observedLogDirs``."""
    first, *rest = topic.replace("-", ".").split(".")
    return first + "".join(part.capitalize() for part in rest)


def message_name(kind: EventKind) -> str:
    """Convert ``headgate.log-dirs.v1`` to ``logDirsV1``."""
    return channel_name(kind.event_type.removeprefix("headgate."))


def _channel(topic: str, messages: Iterable[str]) -> dict[str, Any]:
    settings = TopicSettings()
    planned = next(p for p in plan(settings) if p.topic == settings.topic(topic))
    config = {n: [v] if n in _LISTS else int(v) for n in _CONFIGS if (v := planned.config.get(n)) is not None}
    binding = {"partitions": planned.partitions, "topicConfiguration": config, "bindingVersion": _BINDING}
    return {
        "address": f"{{prefix}}.{topic}",
        "parameters": {"prefix": {"default": settings.prefix, "description": "The setting `topics.prefix`."}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"kafka": binding},
    }


def _message(kind: EventKind, example: Mapping[str, Any] | None) -> dict[str, Any]:
    key = {"type": "string", "description": f"{kind.key[:1].upper()}{kind.key[1:]}."}
    return {
        "name": kind.event_type,
        "title": kind.event_type,
        "summary": kind.summary,
        "contentType": _CONTENT_TYPE,
        "headers": {"type": "object", "properties": {"content-type": {"const": CONTENT_TYPE}}},
        "payload": {"$ref": f"./schemas/{kind.event_type}.json"},
        "bindings": {"kafka": {"key": key, "bindingVersion": _BINDING}},
        **({"examples": [{"payload": example}]} if example else {}),
    }
