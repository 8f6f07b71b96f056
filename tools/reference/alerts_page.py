"""docs/reference/alerts.md and alertmanager.yaml: the alerts of all policies, and how Alertmanager groups them."""

from typing import Any

import yaml

from policies.decisions import Severity
from policies.policy import HOST_ALERT_KINDS
from policies.registry import POLICIES
from tools.reference.shapes import code, table

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
    return _ALERTMANAGER + yaml.safe_dump(_configuration(), sort_keys=False, width=120)


def _configuration() -> dict[str, Any]:
    return {
        "route": {
            "receiver": "tickets",
            "group_by": ["cluster", "policy"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": ['severity="critical"'], "receiver": "pager"},
                {"matchers": ['severity="info"'], "receiver": "nobody"},
            ],
        },
        "receivers": [
            {"name": "pager", "webhook_configs": [{"url": "http://127.0.0.1:5001/pager"}]},
            {"name": "tickets", "webhook_configs": [{"url": "http://127.0.0.1:5001/tickets"}]},
            {"name": "nobody"},
        ],
        "inhibit_rules": [
            {
                "source_matchers": [f'policy="{kind.name}"', f'alertname="{inhibition.cause}"'],
                "target_matchers": [f'policy="{kind.name}"', f'alertname=~"{"|".join(inhibition.effects)}"'],
                "equal": list(inhibition.same),
            }
            for kind in POLICIES.values()
            for inhibition in kind.inhibitions
        ],
    }
