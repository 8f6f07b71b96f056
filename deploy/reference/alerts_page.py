"""docs/reference/alerts.md: every alert that a policy declares, and the host's alert for all policies."""

from collections.abc import Iterator

from deploy.reference.markdown import code, table
from policies.decisions import Severity
from policies.policy import AlertKind
from policies.registry import POLICIES
from streaming.host import POLICY_FAILED

_INTRODUCTION = """\
# Alerts

Made by `make generate` from what each policy declares; `make check` fails when it is stale.

Alerts are on the topic `decided.alerts` ([`headgate.alert.v1`](events.md#headgatealertv1)) and in the metric
`headgate_alerts`. Each fires once when its condition has held for `alert_grace`, is repeated every `alert_repeat`, and
resolves once.
"""

_OF_THE_HOST = AlertKind(
    POLICY_FAILED,
    (Severity.CRITICAL,),
    "For this cluster the policy raised an error, or decided more than a record may hold: what it decided last stays "
    "in force, what it could not take is in the dead letters, and it is tried again. Other clusters go on.",
)


def alerts_page() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION, *table(("alert", "policy", "severity", "what is the case while it fires"), _rows())]
    lines += ["| severity | meaning |", "|---|---|", *(f"| `{each}` | {each.meaning} |" for each in Severity), ""]
    return "\n".join(lines)


def _rows() -> Iterator[tuple[str, ...]]:
    for kind in POLICIES.values():
        yield from (_row(alert, f"`{kind.name}`") for alert in kind.alerts)
    yield _row(_OF_THE_HOST, "any")


def _row(alert: AlertKind, policy: str) -> tuple[str, ...]:
    return (f"`{alert.name}`", policy, code(alert.severities), alert.meaning)
