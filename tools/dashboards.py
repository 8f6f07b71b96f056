"""Generates the Grafana dashboards: a table of panels, and Grafana's JSON of them.

`$cluster` is the dashboards' variable for the chosen clusters, `$__rate_interval` is Grafana's own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Panel = dict[str, Any]
"""Grafana's JSON of a panel."""

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 24, 8


def _panel(
    title: str,
    query: str,
    legend: str = "",
    unit: str = "short",
    kind: str = "timeseries",
    *,
    description: str = "",
    limits: str = "",
    steps: Sequence[tuple[float | None, str]] = (),
) -> Panel:
    """Return one panel without its place; unit and kind are Grafana's names.

    Args:
        limits: the query of the values' limits, which are drawn beside them by their label `limit`.
        steps: values from which a colour is drawn, ascending; the first begins at None.
    """
    target: dict[str, Any] = {"datasource": _SOURCE, "expr": query, "refId": "A"}
    target |= {"legendFormat": legend} if legend else {}
    targets = [target | ({"format": "table", "instant": True, "range": False} if kind == "table" else {})]
    if limits:
        targets += [target | {"expr": limits, "legendFormat": "{{cluster}}: {{limit}} limit", "refId": "B"}]
    defaults: dict[str, Any] = {"unit": unit}
    if steps:
        colours = [{"color": colour} | ({} if value is None else {"value": value}) for value, colour in steps]
        defaults |= {"thresholds": {"mode": "absolute", "steps": colours}}
        defaults |= {"custom": {"thresholdsStyle": {"mode": "dashed"}}}
    return {
        "type": kind,
        "title": title,
        **({"description": description} if description else {}),
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
        "repeatDirection": "h",
        "transformations": [],
        "transparent": False,
    }


def _increase(counter: str, by: str, cluster: str = "") -> str:
    return f"sum by ({by}) (increase({counter}{cluster}[$__rate_interval]))"


_C = '{cluster=~"$cluster"}'
_DISK = "{{cluster}}: broker {{broker}} {{log_dir}}"
_LOW = ((None, "red"), (0.01, "orange"), (1, "green"))  # a factor: stopped, slowed, free
_SOON = ((None, "red"), (1800, "green"))  # the time to full, in seconds: the default of `time_to_full_alert`
_FULLEST = f"bottomk(10, headgate_volume_usable_bytes{_C})"
_LATENCY = "sum by (le, policy) (rate(headgate_decision_latency_seconds_bucket[$__rate_interval]))"
_BATCHES = "sum by (le) (rate(headgate_query_batch_duration_seconds_bucket[$__rate_interval]))"

ROWS: Mapping[tuple[str, str], Sequence[Panel]] = {
    ("fleet", "Loop health"): (
        _panel("Processes up", 'sum(up{job="headgate"})', kind="stat"),
        _panel("Expired decisions", "sum(headgate_decision_stale)", kind="stat",
               description="Past their validity without a successor: the loop is dead, the fallback applies."),
        _panel("Loop alive", "min(headgate_loop_alive)", kind="stat",
               description="0: the query is dead or far behind."),
        _panel("Query: time since the last batch", "time() - headgate_query_last_progress_timestamp_seconds",
               unit="s", kind="stat"),
        _panel("Firing alerts", f"sum(headgate_alerts{_C}) or vector(0)", kind="stat"),
    ),
    ("fleet", "Alerts and decisions"): (
        _panel("Alerts by name", f"sum by (alert, severity, cluster) (headgate_alerts{_C})",
               "{{severity}}: {{alert}} of {{cluster}}", kind="table"),
        _panel("Decisions by verdict", _increase("headgate_verdicts_total", "policy, verdict"),
               "{{policy}}: {{verdict}}"),
        _panel("Decisions by reason", _increase("headgate_verdicts_total", "policy, reason"), "{{policy}}: {{reason}}"),
    ),
    ("fleet", "Latency"): (
        _panel("Observation to decision, p99", f"histogram_quantile(0.99, {_LATENCY})", "{{policy}}", "s",
               steps=((None, "green"), (10, "red"))),
        _panel("Age of the newest observation", f"headgate_observation_age_seconds{_C}", "{{cluster}}", "s",
               steps=((None, "green"), (300, "red"))),
        _panel("Query: lag, records", "headgate_query_lag_records"),
        _panel("Query: batch duration, median", f"histogram_quantile(0.5, {_BATCHES})", unit="s"),
    ),
    ("fleet", "Errors"): (
        _panel("Readings by outcome", f"sum by (cluster, outcome) (rate(headgate_polls_total{_C}[$__rate_interval]))",
               "{{cluster}}: {{outcome}}", "reqps"),
        _panel("Dead letters", _increase("headgate_dead_letters_total", "reason"), "{{reason}}"),
        _panel("Query restarts", "headgate_query_restarts_total", kind="stat"),
        _panel("Query: keys with state", "headgate_query_state_keys"),
    ),
    ("throttle", "Throttle"): (
        _panel("Factor", f"headgate_throttle_factor{_C}", "{{cluster}}", "percentunit", steps=_LOW),
        _panel("Volumes that limit the factor", f"headgate_throttling_volume{_C}", f"{_DISK}, {{{{reason}}}}",
               kind="table"),
        _panel("Limits reached", _increase("headgate_throttle_limit_violations_total", "cluster, limit", _C),
               "{{cluster}}: {{limit}}"),
    ),
    ("throttle", "Volumes"): (
        _panel("Free space, share, ten fullest volumes",
               f"bottomk(10, headgate_volume_usable_bytes{_C} / headgate_volume_total_bytes{_C})", _DISK,
               "percentunit"),
        _panel("Ten volumes with the least free space, and their limits", _FULLEST, _DISK, "bytes",
               limits="max by (cluster, limit) (headgate_volume_limit_bytes and on (cluster, broker, log_dir) "
               f"{_FULLEST})"),
        _panel("Time to full, ten soonest", f"bottomk(10, headgate_volume_seconds_to_full{_C})", _DISK, "s",
               steps=_SOON),
        _panel("Brokers by state", f"headgate_kafka_brokers{_C}", "{{cluster}}: {{state}}"),
    ),
    ("throttle", "Quotas"): (
        _panel("Quotas in force", f"headgate_quota_bytes_per_second{_C}", "{{cluster}}: {{entity}}", "Bps"),
        _panel("Quotas set, by outcome", _increase("headgate_quota_applications_total", "outcome", _C), "{{outcome}}"),
    ),
    ("bookie-disks", "Placement groups"): (
        _panel("Publishing factor", f"headgate_bookie_throttle_factor{_C}", "{{cluster}}: {{group}}", "percentunit",
               steps=_LOW),
        _panel("Publish limits that Headgate has set", f"headgate_publish_bytes_per_second{_C}",
               "{{cluster}}: {{target}}", "Bps"),
        _panel("Publish limits that cannot be set", f"headgate_publish_failing{_C}", "{{cluster}}", kind="stat"),
    ),
    ("bookie-disks", "Bookies"): (
        _panel("Free share of the fullest ledger dir",
               f"min by (cluster, bookie) (headgate_bookie_dir_usable_bytes{_C} / headgate_bookie_dir_total_bytes)",
               "{{cluster}}: {{bookie}}", "percentunit"),
        _panel("Time to full", f"min by (cluster, bookie) (headgate_bookie_dir_seconds_to_full{_C})",
               "{{cluster}}: {{bookie}}", "s", steps=_SOON),
        _panel("Read-only bookies", f"sum by (cluster) (headgate_bookie_read_only{_C})", "{{cluster}}", kind="stat"),
    ),
    ("isolation", "Bookies"): (
        _panel("Bookies", f"headgate_bookies{_C}", "{{cluster}}: {{state}}, assigned {{assigned}}"),
        _panel("Writable bookies in no group", f"headgate_unassigned_bookie{_C}", "{{cluster}}: {{bookie}}",
               kind="table"),
        _panel("Leak window, median",
               f"histogram_quantile(0.5, sum by (le, cluster) (headgate_bookie_leak_window_seconds_bucket{_C}))",
               "{{cluster}}", "s", description="From a bookie's registration to its quarantine."),
    ),
    ("isolation", "Namespaces"): (
        _panel("Leaking bookies by namespace", f"headgate_isolation_leak{_C}", "{{cluster}}: {{namespace}}"),
        _panel("Headroom (losses until the next tier), ten lowest", f"bottomk(10, headgate_namespace_headroom{_C})",
               "{{cluster}}: {{namespace}}"),
        _panel("Namespaces by tier in use", f"count by (cluster, tier) (headgate_namespace_candidates{_C})",
               "{{cluster}}: {{tier}}"),
        _panel("Quarantines, by outcome", _increase("headgate_quarantines_total", "outcome", _C), "{{outcome}}"),
    ),
    ("sessions", "Members"): (
        _panel("Sessions", f"sum by (cluster, role, status) (headgate_sessions{_C})",
               "{{cluster}}: {{role}} {{status}}"),
        _panel("Sessions lost", f"increase(headgate_session_losses_total{_C}[$__rate_interval])", "{{cluster}}"),
        _panel("Bundles", f"headgate_bundles{_C}", "{{cluster}}: {{state}}"),
    ),
    ("sessions", "Decisions"): (
        _panel("Decisions by verdict and reason",
               _increase("headgate_session_decisions_total", "cluster, verdict, reason", _C),
               "{{cluster}}: {{verdict}}, {{reason}}"),
        _panel("Bundle actions by outcome", _increase("headgate_bundle_actions_total", "verdict, outcome", _C),
               "{{verdict}}: {{outcome}}"),
    ),
    ("switching", "The switch"): (
        _panel("Stage", f"headgate_switch_stage{_C}", "{{cluster}}: {{source}} to {{target}}, {{stage}}",
               kind="table"),
        _panel("Halted, blocked or degraded",
               f"sum by (cluster) (headgate_switch_halted{_C} + headgate_switch_blocked{_C} + "
               f"headgate_switch_degraded{_C})", "{{cluster}}", kind="stat"),
        _panel("Brokers", f"headgate_switch_brokers{_C}", "{{cluster}}: {{state}}"),
    ),
    ("switching", "Ledgers"): (
        _panel("Ledgers by stage", f"headgate_switch_ledgers{_C}", "{{cluster}}: {{stage}}"),
        _panel("Copy rate", f"rate(headgate_switch_copied_bytes_total{_C}[$__rate_interval])", "{{cluster}}", "Bps"),
        _panel("Lease held", f"headgate_switch_lease_held{_C}", "{{cluster}}"),
    ),
}  # fmt: skip
"""The panels of each row, by the names of its dashboard and of the row."""


def files() -> dict[str, str]:
    """Return the JSON of every dashboard by its file name; reproducible on any machine."""
    names = dict.fromkeys(name for name, _ in ROWS)
    return {f"headgate-{name}.json": json.dumps(_dashboard(name), indent=2, sort_keys=True) + "\n" for name in names}


def _dashboard(name: str) -> dict[str, Any]:
    panels: list[Panel] = []
    rows = ((title, row) for (board, title), row in ROWS.items() if board == name)
    for number, (title, row) in enumerate(rows):
        top, width = number * (1 + _HEIGHT), _WIDTH // len(row)
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place})
        places = ({"h": _HEIGHT, "w": width, "x": n * width, "y": top + 1} for n in range(len(row)))
        panels += [panel | {"gridPos": place} for panel, place in zip(row, places, strict=True)]
    variables = [
        _variable("source", "Prometheus", "datasource", "prometheus"),
        _variable("cluster", "Cluster", "query", "label_values(headgate_observation_age_seconds, cluster)")
        | {"datasource": _SOURCE, "multi": True, "includeAll": True, "allValue": ".*"},
        _variable("page", "Status page", "textbox", "http://127.0.0.1:9408"),  # as browsers reach the exporter
    ]
    link = {"asDropdown": False, "icon": "", "includeVars": False, "keepTime": False, "tags": [], "tooltip": ""}
    others = {"type": "dashboards", "title": "Headgate", "tags": ["headgate"], "targetBlank": False, "url": ""}
    others |= {"asDropdown": True, "includeVars": True, "keepTime": True}
    page = {"type": "link", "title": "Status page", "targetBlank": True, "url": "${page}/"}
    return {
        "uid": f"headgate-{name}",
        "title": f"Headgate: {name.replace('-', ' ')}",
        "tags": ["headgate"],
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "editable": False,
        "links": [link | others, link | page],
        "templating": {"list": variables},
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, 1)],
        "schemaVersion": 36,
        "annotations": {},
        "fiscalYearStartMonth": 0,
        "graphTooltip": 0,
        "style": "dark",
        "timezone": "browser",
    }


def _variable(name: str, label: str, kind: str, query: str) -> dict[str, Any]:
    unused = {"auto": False, "auto_count": 30, "auto_min": "10s", "hide": 0, "skipUrlSync": False, "multi": False}
    unused |= {"id": "00000000-0000-0000-0000-000000000000", "includeAll": False}
    return {**unused, "name": name, "label": label, "type": kind, "query": query}
