"""docs/reference/asyncapi.yaml: all topics with their writers and readers, as AsyncAPI 3.0."""

from collections.abc import Iterable, Iterator, Mapping
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
    topics = list(dict.fromkeys([*(kind.topic for kind in kinds), REPORTS]))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headgate",
            "version": version("headgate"),
            "description": "Headgate's observations and decisions, each record a CloudEvent in structured JSON mode.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _CONTENT_TYPE,
        "servers": {
            "loop": {
                "host": "{bootstrap_servers}",
                "protocol": "kafka",
                "description": "The loop's own Kafka: `kafka.bootstrap_servers` of the settings.",
                "variables": {"bootstrap_servers": {"default": "localhost:9092"}},
            }
        },
        "channels": {channel_name(topic): _channel(topic, _document_part(kinds, topic)) for topic in topics},
        "operations": dict(_operations(kinds, topics)),
        "components": {"messages": {message_name(k): _message(k, shown.get(k.event_type)) for k in kinds}},
    }


def channel_name(topic: str) -> str:
    """Convert ``observed.log-dirs`` to ``observedLogDirs``."""
    first, *rest = topic.replace("-", ".").split(".")
    return first + "".join(part.capitalize() for part in rest)


def message_name(kind: EventKind) -> str:
    """Convert ``headgate.log-dirs.v1`` to ``logDirsV1``."""
    return channel_name(kind.event_type.removeprefix("headgate."))


def _document_part(kinds: Iterable[EventKind], topic: str) -> list[EventKind]:
    if topic == REPORTS:  # the last of each of the audit's reports
        return [kind for kind in kinds if kind.topic == AUDIT and issubclass(kind.data, ActuatorEvent)]
    return [kind for kind in kinds if kind.topic == topic]


def _channel(topic: str, kinds: list[EventKind]) -> dict[str, Any]:
    settings = TopicSettings()
    planned = next(p for p in plan(settings) if p.topic == settings.topic(topic))
    config = {n: [v] if n in _LISTS else int(v) for n in _CONFIGS if (v := planned.config.get(n)) is not None}
    binding = {"partitions": planned.partitions, "topicConfiguration": config, "bindingVersion": _BINDING}
    return {
        "address": f"{{prefix}}.{topic}",
        "parameters": {"prefix": {"default": settings.prefix, "description": "The setting `topics.prefix`."}},
        "messages": {message_name(k): {"$ref": f"#/components/messages/{message_name(k)}"} for k in kinds},
        "bindings": {"kafka": binding},
    }


def _operations(kinds: Iterable[EventKind], topics: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Headgate's operations: collectors send the records that the query receives; query and actuators send the rest."""
    for topic in topics:
        channel = channel_name(topic)
        of_topic = _document_part(kinds, topic)
        writers = " and ".join(dict.fromkeys(kind.written_by for kind in of_topic))
        yield f"send.{channel}", _operation("send", channel, of_topic, f"Written by {writers}.")
        is_observed = of_topic[0].is_observed
        readers = "the query and the exporter" if is_observed else "actuators, the exporter, and your consumers"
        yield f"receive.{channel}", _operation("receive", channel, of_topic, f"Read by {readers}.")


def _operation(action: str, channel: str, kinds: list[EventKind], summary: str) -> dict[str, Any]:
    place = f"#/channels/{channel}"
    messages = [{"$ref": f"{place}/messages/{message_name(k)}"} for k in kinds]
    return {"action": action, "summary": summary, "channel": {"$ref": place}, "messages": messages}


def _message(kind: EventKind, example: Mapping[str, Any] | None) -> dict[str, Any]:
    key = {"type": "string", "description": f"{kind.key[:1].upper()}{kind.key[1:]}."}
    return {
        "name": kind.event_type,
        "title": kind.event_type,
        "summary": kind.summary,
        "contentType": _CONTENT_TYPE,
        "headers": {"type": "object", "properties": {"content-type": {"const": CONTENT_TYPE}}},
        "payload": {"$ref": f"./schemas/{kind.schema_file}"},
        "bindings": {"kafka": {"key": key, "bindingVersion": _BINDING}},
        **({"examples": [{"payload": example}]} if example else {}),
    }
