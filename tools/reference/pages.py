"""The pages of docs/reference/: events.md with asyncapi.yaml, alerts.md with alertmanager.yaml, and metrics.md.

The metrics are obtained from the parts that register them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry

from connectors.alertmanager.notifier import NotifierMetrics
from connectors.bookie_disks.publishing import PublishMetrics
from connectors.collection import PollMetrics
from connectors.exporter.exporter import Exporter
from connectors.http.tls import Certificates
from connectors.isolation.quarantine import QuarantineMetrics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import PublisherMetrics
from connectors.kafka.topics import TopicSettings, plan
from connectors.membership import PartitionMetrics
from connectors.sessions.unload import UnloadMetrics
from connectors.switching.reconciler import SwitchExecutorMetrics
from connectors.throttle.own_quotas import QuotaMetrics
from deploy.processes.running import renewal_gauge
from deploy.query.supervisor import QueryHealth
from deploy.settings.application import Settings
from policies.decisions import Severity
from policies.observations import ActuatorEvent
from policies.policy import HOST_ALERT_KINDS
from policies.registry import AUDIT, POLICIES, REPORTS
from policies.units import ClosedEnum
from policies.wire import CONTENT_TYPE, MAX_RECORD_BYTES
from tools.reference.catalogue import AuditEntry, EventKind, catalogue, code, examples, models_in, rows, table

_EVENTS = f"""\
# Events

`make generate` writes this page from the models in the code; `make check` fails when it is stale.

Every record is one [CloudEvents 1.0](https://cloudevents.io) event in structured JSON mode, of at most \
{MAX_RECORD_BYTES // 2**20} MiB if the query reads it.
This page names topics without their prefix, by default `headgate.` (`topics.prefix`). Times are RFC 3339, UTC, with
milliseconds. Readers ignore unknown fields, so fields may be added; any other change makes a new type (`.v2`).
Delivery is at least once: a repeated decision has the same `decision_id` and `sequence`.
"""

_ENVELOPE = """\
## The envelope

| field | meaning |
|---|---|
| `specversion` | `1.0`. |
| `id` | Unique; a decision's evidence is the ids of its observations. |
| `source` | The writer. |
| `type` | One of the types below. |
| `subject` | The subject of the data. |
| `time` | When it was read or decided. The age of an observation is measured from Kafka's append time; only a file \
for `headgate replay` uses this time. |
| `datacontenttype` | `application/json`. |
| `data` | As below. |
"""


def events_page() -> str:
    """Return the whole page."""
    kinds = catalogue()
    # GitHub makes anchors of headings without their points.
    links = (f"[`{kind.event_type}`](#{kind.event_type.replace('.', '')})" for kind in kinds)
    overview = [(link, f"`{k.topic}`", k.key, k.written_by) for link, k in zip(links, kinds, strict=True)]
    lines = [_EVENTS, *table(("type", "topic", "record key", "written by"), overview), _ENVELOPE]
    return "\n".join([*lines, *(line for kind in kinds for line in _section(kind)), *_sets(kinds)])


def _section(kind: EventKind) -> Iterator[str]:
    yield f"## {kind.event_type}\n\n{kind.summary}\n"
    yield f"Topic `{kind.topic}`, schema [{kind.event_type}.json](schemas/{kind.event_type}.json).\n"
    # The decision of an audit entry has its own section.
    shown = rows(kind.data_schema(), nested=kind.data is not AuditEntry)
    body = ((f"`{row.name}`", row.type + ("" if row.required else "; may be left out"), row.meaning) for row in shown)
    yield from table(("field", "type", "meaning"), body)
    if example := examples().get(kind.event_type):
        yield f"```json\n{json.dumps(example, indent=2)}\n```\n"


def _sets(kinds: tuple[EventKind, ...]) -> Iterator[str]:
    """Return each closed enum once, with the events that use it; its name is the heading, so no two have the same."""
    yield "## Closed sets\n"
    used: dict[type[StrEnum], dict[str, None]] = {}
    for kind in kinds:
        for found in models_in(kind.data):
            if issubclass(found, StrEnum) and kind.data is not AuditEntry:
                used.setdefault(found, {})[kind.event_type] = None
    for closed, types in used.items():
        yield f"### {closed.__name__}\n\n{(closed.__doc__ or '').strip()} In {', '.join(types)}.\n"
        assert issubclass(closed, ClosedEnum), f"{closed}: what is on the wire must be a ClosedEnum"  # noqa: S101
        yield from table(("value", "meaning"), ((f"`{member.value}`", member.meaning) for member in closed))


# AsyncAPI 3.0: all topics with their writers and readers.

_BINDING = "0.5.0"
_CONTENT_TYPE = CONTENT_TYPE.partition(";")[0]


def asyncapi() -> str:
    """Return the whole document."""
    head = "# `make generate` writes it from the models in the code; `make check` fails when it is stale.\n"
    return head + yaml.safe_dump(document(), sort_keys=False, width=120, allow_unicode=True)


def document() -> dict[str, Any]:
    """Return the whole document as data."""
    kinds, shown = catalogue(), examples()
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for topic in dict.fromkeys([*(kind.topic for kind in kinds), REPORTS]):
        # The topic of reports has the last of each of the audit's reports.
        reports = [k for k in kinds if topic == REPORTS and k.topic == AUDIT and issubclass(k.data, ActuatorEvent)]
        of_topic = [k for k in kinds if k.topic == topic] + reports
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
    config: dict[str, Any] = {"cleanup.policy": [planned.config["cleanup.policy"]]}
    numbers = ("retention.ms", "delete.retention.ms", "max.message.bytes")  # of those that the Kafka binding has
    config |= {name: int(planned.config[name]) for name in numbers if name in planned.config}
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


# Alerts


_ALERTS = """\
# Alerts

`make generate` writes this page from the policies' registrations; `make check` fails when it is stale.

Alerts are on the topic `decided.alerts` ([`headgate.alert.v1`](events.md#headgatealertv1)) and in the metric
`headgate_alerts`. Each fires once when its condition has held for `alert_grace`, is repeated every `alert_repeat`, and
resolves once.
"""

_RUNBOOKS = """\
`headgate explain`, the status page (`/alerts/<name>`) and `runbook_url` in notifications show the same. Words in
capitals, such as `CLUSTER`, are values of the alert. `headgate explain SUBJECT` fills them in, with the address of the
watched Kafka and the largest topic of the full volume. Headgate's commands find the settings by `-s FILE`, or by
`HEADGATE_SETTINGS`.
"""

_ALERTMANAGER = """\
# A first configuration of Alertmanager. `make generate` writes it from the policies' registrations. By the
# `inhibit_rules`, an alert suppresses those that it explains, so that one full disk pages once. Replace the two
# receivers below by your own, or copy only the rules. `amtool check-config` accepts the file as it is.

route:
  receiver: tickets
  group_by:
  - cluster
  - policy
  group_wait: 10s
  group_interval: 1m
  repeat_interval: 4h
  routes:
  - matchers:
    - severity="critical"
    receiver: pager
  - matchers:
    - severity="info"
    receiver: nobody
receivers:
- name: pager
  webhook_configs:
  - url: http://127.0.0.1:5001/pager
- name: tickets
  webhook_configs:
  - url: http://127.0.0.1:5001/tickets
- name: nobody
"""


def alerts_page() -> str:
    """Return alerts.md."""
    kinds = [(f"`{kind.name}`", alert) for kind in POLICIES.values() for alert in kind.alerts]
    kinds += [("any", alert) for alert in HOST_ALERT_KINDS]
    rows = [(f"[`{a.name}`](#{a.name})", policy, code(a.severities), a.meaning) for policy, a in kinds]
    lines = [_ALERTS, *table(("alert", "policy", "severity", "condition"), rows)]
    lines += ["| severity | meaning |", "|---|---|", *(f"| `{each}` | {each.meaning} |" for each in Severity), ""]
    lines += ["## Runbooks", "", _RUNBOOKS]
    for _, alert in kinds:
        lines += [f"### {alert.name}", "", f"**Means.** {alert.meaning}", ""]
        if alert.remedy:
            verify = alert.verify.format(cluster="CLUSTER", subject="SUBJECT")
            lines += ["**Verify.**", "", "```sh", verify, "```", "", f"**Do.** {alert.remedy}", ""]
            lines += ["```sh", *alert.lines({}), "```", ""] if alert.commands else []
            lines += [f"**Ends.** {alert.ends}", ""]
    return "\n".join(lines)


def alertmanager_page() -> str:
    """Return alertmanager.yaml."""
    rules = [
        {
            "source_matchers": [f'policy="{kind.name}"', f'alertname="{inhibition.cause}"'],
            "target_matchers": [f'policy="{kind.name}"', f'alertname=~"{"|".join(inhibition.effects)}"'],
            "equal": list(inhibition.same),
        }
        for kind in POLICIES.values()
        for inhibition in kind.inhibitions
    ]
    return _ALERTMANAGER + yaml.safe_dump({"inhibit_rules": rules}, sort_keys=False, width=120)


# Metrics


_METRICS = """\
# Metrics

`make generate` writes this page from the registered metrics; `make check` fails when it is stale.

Every process serves them at `/metrics` (`http.host`, `http.port`), with the Prometheus client's metrics of a Python
process (`process_*`, `python_*`). A counter's name ends in `_total`. A histogram has the series `_bucket` (with
the label `le`), `_sum` and `_count`. The series of a volume or cluster disappear with it.
"""


class MetricRow(NamedTuple):
    """One metric family."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def metrics_page() -> str:
    """Return the whole page."""
    lines = [_METRICS]
    for part, families in parts().items():
        body = ((code([m.name]), m.type, code(m.labels), m.help) for m in families)
        lines += [f"## {part}\n", *table(("name", "type", "labels", "meaning"), body)]
    return "\n".join(lines)


def parts() -> dict[str, list[MetricRow]]:
    """Return the metrics of each part by its name."""
    nowhere = KafkaConnection(bootstrap_servers="127.0.0.1:9092")  # no part connects before it runs
    exporter = partial(Exporter, nowhere, "headgate", {}, settings_hash="")
    registering = {"The exporter": lambda registry: exporter(registry=registry)} | other_parts()
    return {part: sorted(_list_registered(register)) for part, register in registering.items()}


def other_parts() -> dict[str, Callable[[CollectorRegistry], object]]:
    """Return the functions that register metrics, by part, except the exporter's."""
    return {
        "The query": lambda registry: QueryHealth(registry, stall_seconds=60.0),
        "The Alertmanager connector": NotifierMetrics,
        "The collectors": PollMetrics,
        "The quota actuator": QuotaMetrics,
        "The quarantine actuator": QuarantineMetrics,
        "The unload actuator": UnloadMetrics,
        "The switching executor": SwitchExecutorMetrics,
        "The publish actuator": PublishMetrics,
        "What processes share": PartitionMetrics,
        "The publisher": PublisherMetrics,
        "The settings": renewal_gauge,
        "Each process": lambda registry: registry.register(Certificates(Settings())),
    }


def _list_registered(register: Callable[[CollectorRegistry], object]) -> Iterator[MetricRow]:
    registry = CollectorRegistry(auto_describe=True)
    register(registry)
    for collector in registry._collector_to_names:
        for metric in collector.describe():  # type: ignore[attr-defined]  # of all that is registered here
            # The client library shows labels only with samples, and there are none yet.
            labels: Any = getattr(metric, "_labelnames", None) or getattr(collector, "_labelnames", ())
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            yield MetricRow(name, metric.type, tuple(labels), metric.documentation)
