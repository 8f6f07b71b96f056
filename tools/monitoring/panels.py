"""The panels of the dashboards: titles, units and queries, independent of Grafana's JSON.

`$cluster` is the dashboards' variable for the chosen clusters, `$__rate_interval` is Grafana's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "course", "table"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a dashboard."""

    title: str
    query: str
    """The PromQL query."""
    legend: str = ""
    """Template of a series' name, such as `{{cluster}}`."""
    unit: str = "short"
    """Grafana's name of the unit: `s`, `bytes`, `percentunit`."""
    kind: Kind = "course"
    description: str = ""
    limits: str = ""
    """The PromQL query of the limits of the values, which are drawn beside them by their label `limit`."""
    steps: tuple[tuple[float | None, str], ...] = ()
    """Values from which a colour is drawn, ascending; the first begins at None."""


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    name: str
    """The name of its file; with a prefix, its uid."""
    title: str
    rows: Mapping[str, tuple[Panel, ...]]
    """By its title, the panels of each row."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels of all rows."""
        return tuple(panel for panels in self.rows.values() for panel in panels)


_C = '{cluster=~"$cluster"}'
_ALERTS = f"sum by (alert, severity, cluster) (headgate_alerts{_C})"
_LOW = ((None, "red"), (0.01, "orange"), (1, "green"))
"""Of a factor: stopped, slowed, free."""
_SOON = ((None, "red"), (1800, "green"))
"""Of the time to full, in seconds: the default of `time_to_full_alert`."""
_FULLEST = f"bottomk(10, headgate_volume_usable_bytes{_C})"
_LATENCY = "sum by (le, policy) (rate(headgate_decision_latency_seconds_bucket[$__rate_interval]))"

FLEET = Board("fleet", "Headgate: fleet", {
    "Loop health": (
        Panel("Processes up", 'sum(up{job="headgate"})', kind="number"),
        Panel("Expired decisions", "sum(headgate_decision_stale)", kind="number",
              description="Past their validity without a successor: the loop is dead, the fallback applies."),
        Panel("Loop alive", "min(headgate_loop_alive)", kind="number",
              description="0: the query is dead or far behind."),
        Panel("Query: time since the last batch", "time() - headgate_query_last_progress_timestamp_seconds", unit="s",
              kind="number"),
        Panel("Firing alerts", f"sum(headgate_alerts{_C}) or vector(0)", kind="number"),
    ),
    "Alerts and decisions": (
        Panel("Alerts by name", _ALERTS, "{{severity}}: {{alert}} of {{cluster}}", kind="table"),
        Panel("Decisions by verdict", "sum by (policy, verdict) (increase(headgate_verdicts_total[$__rate_interval]))",
              "{{policy}}: {{verdict}}"),
        Panel("Decisions by reason", "sum by (policy, reason) (increase(headgate_verdicts_total[$__rate_interval]))",
              "{{policy}}: {{reason}}"),
    ),
    "Latency": (
        Panel("Observation to decision, p99", f"histogram_quantile(0.99, {_LATENCY})", "{{policy}}", "s",
              steps=((None, "green"), (10, "red"))),
        Panel("Age of the newest observation", f"headgate_observation_age_seconds{_C}", "{{cluster}}", "s",
              steps=((None, "green"), (300, "red"))),
        Panel("Query: lag, records", "headgate_query_lag_records"),
        Panel("Query: batch duration, median",
              "histogram_quantile(0.5, sum by (le) "
              "(rate(headgate_query_batch_duration_seconds_bucket[$__rate_interval])))", unit="s"),
    ),
    "Errors": (
        Panel("Readings by outcome", f"sum by (cluster, outcome) (rate(headgate_polls_total{_C}[$__rate_interval]))",
              "{{cluster}}: {{outcome}}", "reqps"),
        Panel("Dead letters", "sum by (reason) (increase(headgate_dead_letters_total[$__rate_interval]))",
              "{{reason}}"),
        Panel("Query restarts", "headgate_query_restarts_total", kind="number"),
        Panel("Query: keys with state", "headgate_query_state_keys"),
    ),
})  # fmt: skip

THROTTLE = Board("throttle", "Headgate: throttle", {
    "Throttle": (
        Panel("Factor", f"headgate_throttle_factor{_C}", "{{cluster}}", "percentunit", steps=_LOW),
        Panel("Volumes that limit the factor", f"headgate_throttling_volume{_C}",
              "{{cluster}}: broker {{broker}} {{log_dir}}, {{reason}}", kind="table"),
        Panel("Limits reached",
              f"sum by (cluster, limit) (increase(headgate_throttle_limit_violations_total{_C}[$__rate_interval]))",
              "{{cluster}}: {{limit}}"),
    ),
    "Volumes": (
        Panel("Free space, share, ten fullest volumes",
              f"bottomk(10, headgate_volume_usable_bytes{_C} / headgate_volume_total_bytes{_C})",
              "{{cluster}}: broker {{broker}} {{log_dir}}", "percentunit"),
        Panel("Ten volumes with the least free space, and their limits", _FULLEST,
              "{{cluster}}: broker {{broker}} {{log_dir}}", "bytes",
              limits=f"max by (cluster, limit) (headgate_volume_limit_bytes and on (cluster, broker, log_dir) "
              f"{_FULLEST})"),
        Panel("Time to full, ten soonest", f"bottomk(10, headgate_volume_seconds_to_full{_C})",
              "{{cluster}}: broker {{broker}} {{log_dir}}", "s", steps=_SOON),
        Panel("Brokers by state", f"headgate_kafka_brokers{_C}", "{{cluster}}: {{state}}"),
    ),
    "Quotas": (
        Panel("Quotas in force", f"headgate_quota_bytes_per_second{_C}", "{{cluster}}: {{entity}}", "Bps"),
        Panel("Quotas set, by outcome",
              f"sum by (outcome) (increase(headgate_quota_applications_total{_C}[$__rate_interval]))", "{{outcome}}"),
    ),
})  # fmt: skip

ISOLATION = Board("isolation", "Headgate: isolation", {
    "Bookies": (
        Panel("Bookies", f"headgate_bookies{_C}", "{{cluster}}: {{state}}, assigned {{assigned}}"),
        Panel("Writable bookies in no group", f"headgate_unassigned_bookie{_C}", "{{cluster}}: {{bookie}}",
              kind="table"),
        Panel("Leak window, median",
              f"histogram_quantile(0.5, sum by (le, cluster) (headgate_bookie_leak_window_seconds_bucket{_C}))",
              "{{cluster}}", "s", description="From a bookie's registration to its quarantine."),
    ),
    "Namespaces": (
        Panel("Leaking bookies by namespace", f"headgate_isolation_leak{_C}", "{{cluster}}: {{namespace}}"),
        Panel("Headroom (losses until the next tier), ten lowest", f"bottomk(10, headgate_namespace_headroom{_C})",
              "{{cluster}}: {{namespace}}"),
        Panel("Namespaces by tier in use", f"count by (cluster, tier) (headgate_namespace_candidates{_C})",
              "{{cluster}}: {{tier}}"),
        Panel("Quarantines, by outcome",
              f"sum by (outcome) (increase(headgate_quarantines_total{_C}[$__rate_interval]))", "{{outcome}}"),
    ),
})  # fmt: skip

SESSIONS = Board("sessions", "Headgate: sessions", {
    "Members": (
        Panel("Sessions", f"sum by (cluster, role, status) (headgate_sessions{_C})",
              "{{cluster}}: {{role}} {{status}}"),
        Panel("Sessions lost", f"increase(headgate_session_losses_total{_C}[$__rate_interval])", "{{cluster}}"),
        Panel("Bundles", f"headgate_bundles{_C}", "{{cluster}}: {{state}}"),
    ),
    "Decisions": (
        Panel("Decisions by verdict and reason",
              f"sum by (cluster, verdict, reason) (increase(headgate_session_decisions_total{_C}[$__rate_interval]))",
              "{{cluster}}: {{verdict}}, {{reason}}"),
        Panel("Bundle actions by outcome",
              f"sum by (verdict, outcome) (increase(headgate_bundle_actions_total{_C}[$__rate_interval]))",
              "{{verdict}}: {{outcome}}"),
    ),
})  # fmt: skip

SWITCHING = Board("switching", "Headgate: switching", {
    "The switch": (
        Panel("Stage", f"headgate_switch_stage{_C}", "{{cluster}}: {{source}} to {{target}}, {{stage}}", kind="table"),
        Panel("Halted, blocked or degraded",
              f"sum by (cluster) (headgate_switch_halted{_C} + headgate_switch_blocked{_C} + "
              f"headgate_switch_degraded{_C})", "{{cluster}}", kind="number"),
        Panel("Brokers", f"headgate_switch_brokers{_C}", "{{cluster}}: {{state}}"),
    ),
    "Ledgers": (
        Panel("Ledgers by stage", f"headgate_switch_ledgers{_C}", "{{cluster}}: {{stage}}"),
        Panel("Copy rate", f"rate(headgate_switch_copied_bytes_total{_C}[$__rate_interval])", "{{cluster}}", "Bps"),
        Panel("Lease held", f"headgate_switch_lease_held{_C}", "{{cluster}}"),
    ),
})  # fmt: skip

BOOKIE_DISKS = Board("bookie-disks", "Headgate: bookie disks", {
    "Placement groups": (
        Panel("Publishing factor", f"headgate_bookie_throttle_factor{_C}", "{{cluster}}: {{group}}", "percentunit",
              steps=_LOW),
        Panel("Publish limits that Headgate has set", f"headgate_publish_bytes_per_second{_C}",
              "{{cluster}}: {{target}}", "Bps"),
        Panel("Publish limits that cannot be set", f"headgate_publish_failing{_C}", "{{cluster}}", kind="number"),
    ),
    "Bookies": (
        Panel("Free share of the fullest ledger dir",
              f"min by (cluster, bookie) (headgate_bookie_dir_usable_bytes{_C} / headgate_bookie_dir_total_bytes)",
              "{{cluster}}: {{bookie}}", "percentunit"),
        Panel("Time to full", f"min by (cluster, bookie) (headgate_bookie_dir_seconds_to_full{_C})",
              "{{cluster}}: {{bookie}}", "s", steps=_SOON),
        Panel("Read-only bookies", f"sum by (cluster) (headgate_bookie_read_only{_C})", "{{cluster}}", kind="number"),
    ),
})  # fmt: skip

BOARDS = (FLEET, THROTTLE, BOOKIE_DISKS, ISOLATION, SESSIONS, SWITCHING)
