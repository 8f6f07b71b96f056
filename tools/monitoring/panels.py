"""The panels of the dashboards: titles, units and queries, independent of Grafana's JSON.

`$cluster` is the dashboards' variable for the chosen clusters, `$__rate_interval` is Grafana's own.
"""

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
    """One dashboard: rows of panels, each row with its title."""

    name: str
    """The name of its file; with a prefix, its uid."""
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return the panels of all rows."""
        return tuple(panel for _, panels in self.rows for panel in panels)


_ALERTS = 'sum by (alert, severity, cluster) (headgate_alerts{cluster=~"$cluster"})'
_LOW = ((None, "red"), (0.01, "orange"), (1, "green"))
"""Of a factor: stopped, slowed, free."""
_SOON = ((None, "red"), (1800, "green"))
"""Of the time to full, in seconds: the default of `time_to_full_alert`."""
_FULLEST = 'bottomk(10, headgate_volume_usable_bytes{cluster=~"$cluster"})'
_LATENCY = "sum by (le, policy) (rate(headgate_decision_latency_seconds_bucket[$__rate_interval]))"

FLEET = Board(
    "fleet",
    "Headgate: fleet",
    (
        (
            "Loop health",
            (
                Panel("Processes up", 'sum(up{job="headgate"})', kind="number"),
                Panel("Expired decisions", "sum(headgate_decision_stale)", kind="number",
                      description="Past their validity without a successor: the loop is dead, the fallback applies."),
                Panel("Loop alive", "min(headgate_loop_alive)", kind="number",
                      description="0: the query is dead or far behind."),
                Panel("Query: time since the last batch", "time() - headgate_query_last_progress_timestamp_seconds",
                      unit="s", kind="number"),
                Panel("Firing alerts", 'sum(headgate_alerts{cluster=~"$cluster"}) or vector(0)', kind="number"),
            ),
        ),
        (
            "Alerts and decisions",
            (
                Panel("Alerts by name", _ALERTS, "{{severity}}: {{alert}} of {{cluster}}", kind="table"),
                Panel("Decisions by verdict",
                      "sum by (policy, verdict) (increase(headgate_verdicts_total[$__rate_interval]))",
                      "{{policy}}: {{verdict}}"),
                Panel("Decisions by reason",
                      "sum by (policy, reason) (increase(headgate_verdicts_total[$__rate_interval]))",
                      "{{policy}}: {{reason}}"),
            ),
        ),
        (
            "Latency",
            (
                Panel("Observation to decision, p99", f"histogram_quantile(0.99, {_LATENCY})", "{{policy}}", "s",
                      steps=((None, "green"), (10, "red"))),
                Panel("Age of the newest observation", 'headgate_observation_age_seconds{cluster=~"$cluster"}',
                      "{{cluster}}", "s", steps=((None, "green"), (300, "red"))),
                Panel("Query: lag, records", "headgate_query_lag_records"),
                Panel("Query: batch duration, median",
                      "histogram_quantile(0.5, sum by (le) "
                      "(rate(headgate_query_batch_duration_seconds_bucket[$__rate_interval])))", "", "s"),
            ),
        ),
        (
            "Errors",
            (
                Panel("Readings by outcome",
                      'sum by (cluster, outcome) (rate(headgate_polls_total{cluster=~"$cluster"}[$__rate_interval]))',
                      "{{cluster}}: {{outcome}}", "reqps"),
                Panel("Dead letters", "sum by (reason) (increase(headgate_dead_letters_total[$__rate_interval]))",
                      "{{reason}}"),
                Panel("Query restarts", "headgate_query_restarts_total", kind="number"),
                Panel("Query: keys with state", "headgate_query_state_keys"),
            ),
        ),
    ),
)  # fmt: skip

THROTTLE = Board(
    "throttle",
    "Headgate: throttle",
    (
        (
            "Throttle",
            (
                Panel("Factor", 'headgate_throttle_factor{cluster=~"$cluster"}', "{{cluster}}", "percentunit",
                      steps=_LOW),
                Panel("Volumes that limit the factor", 'headgate_throttling_volume{cluster=~"$cluster"}',
                      "{{cluster}}: broker {{broker}} {{log_dir}}, {{reason}}", kind="table"),
                Panel("Limits reached",
                      'sum by (cluster, limit) (increase(headgate_throttle_limit_violations_total'
                      '{cluster=~"$cluster"}[$__rate_interval]))', "{{cluster}}: {{limit}}"),
            ),
        ),
        (
            "Volumes",
            (
                Panel("Free space, share, ten fullest volumes",
                      'bottomk(10, headgate_volume_usable_bytes{cluster=~"$cluster"} / '
                      'headgate_volume_total_bytes{cluster=~"$cluster"})',
                      "{{cluster}}: broker {{broker}} {{log_dir}}", "percentunit"),
                Panel("Ten volumes with the least free space, and their limits", _FULLEST,
                      "{{cluster}}: broker {{broker}} {{log_dir}}", "bytes",
                      limits='max by (cluster, limit) (headgate_volume_limit_bytes and on (cluster, broker, log_dir) '
                      f'{_FULLEST})'),
                Panel("Time to full, ten soonest",
                      'bottomk(10, headgate_volume_seconds_to_full{cluster=~"$cluster"})',
                      "{{cluster}}: broker {{broker}} {{log_dir}}", "s", steps=_SOON),
                Panel("Brokers by state", 'headgate_kafka_brokers{cluster=~"$cluster"}',
                      "{{cluster}}: {{state}}"),
            ),
        ),
        (
            "Quotas",
            (
                Panel("Quotas in force", 'headgate_quota_bytes_per_second{cluster=~"$cluster"}',
                      "{{cluster}}: {{entity}}", "Bps"),
                Panel("Quotas set, by outcome",
                      'sum by (outcome) (increase(headgate_quota_applications_total'
                      '{cluster=~"$cluster"}[$__rate_interval]))', "{{outcome}}"),
            ),
        ),
    ),
)  # fmt: skip

ISOLATION = Board(
    "isolation",
    "Headgate: isolation",
    (
        (
            "Bookies",
            (
                Panel("Bookies", 'headgate_bookies{cluster=~"$cluster"}',
                      "{{cluster}}: {{state}}, assigned {{assigned}}"),
                Panel("Writable bookies in no group", 'headgate_unassigned_bookie{cluster=~"$cluster"}',
                      "{{cluster}}: {{bookie}}", kind="table"),
                Panel("Leak window, median",
                      'histogram_quantile(0.5, sum by (le, cluster) '
                      '(headgate_bookie_leak_window_seconds_bucket{cluster=~"$cluster"}))', "{{cluster}}", "s",
                      description="From a bookie's registration to its quarantine."),
            ),
        ),
        (
            "Namespaces",
            (
                Panel("Leaking bookies by namespace",
                      'headgate_isolation_leak{cluster=~"$cluster"}', "{{cluster}}: {{namespace}}"),
                Panel("Headroom (losses until the next tier), ten lowest",
                      'bottomk(10, headgate_namespace_headroom{cluster=~"$cluster"})', "{{cluster}}: {{namespace}}"),
                Panel("Namespaces by tier in use",
                      'count by (cluster, tier) (headgate_namespace_candidates{cluster=~"$cluster"})',
                      "{{cluster}}: {{tier}}"),
                Panel("Quarantines, by outcome",
                      'sum by (outcome) (increase(headgate_quarantines_total{cluster=~"$cluster"}[$__rate_interval]))',
                      "{{outcome}}"),
            ),
        ),
    ),
)  # fmt: skip

SESSIONS = Board(
    "sessions",
    "Headgate: sessions",
    (
        (
            "Members",
            (
                Panel("Sessions", 'sum by (cluster, role, status) (headgate_sessions{cluster=~"$cluster"})',
                      "{{cluster}}: {{role}} {{status}}"),
                Panel("Sessions lost", 'increase(headgate_session_losses_total{cluster=~"$cluster"}[$__rate_interval])',
                      "{{cluster}}"),
                Panel("Bundles", 'headgate_bundles{cluster=~"$cluster"}', "{{cluster}}: {{state}}"),
            ),
        ),
        (
            "Decisions",
            (
                Panel("Decisions by verdict and reason",
                      'sum by (cluster, verdict, reason) (increase(headgate_session_decisions_total'
                      '{cluster=~"$cluster"}[$__rate_interval]))', "{{cluster}}: {{verdict}}, {{reason}}"),
                Panel("Bundle actions by outcome",
                      'sum by (verdict, outcome) (increase(headgate_bundle_actions_total'
                      '{cluster=~"$cluster"}[$__rate_interval]))', "{{verdict}}: {{outcome}}"),
            ),
        ),
    ),
)  # fmt: skip

SWITCHING = Board(
    "switching",
    "Headgate: switching",
    (
        (
            "The switch",
            (
                Panel("Stage", 'headgate_switch_stage{cluster=~"$cluster"}',
                      "{{cluster}}: {{source}} to {{target}}, {{stage}}", kind="table"),
                Panel("Halted, blocked or degraded",
                      'sum by (cluster) (headgate_switch_halted{cluster=~"$cluster"} + '
                      'headgate_switch_blocked{cluster=~"$cluster"} + headgate_switch_degraded{cluster=~"$cluster"})',
                      "{{cluster}}", kind="number"),
                Panel("Brokers", 'headgate_switch_brokers{cluster=~"$cluster"}', "{{cluster}}: {{state}}"),
            ),
        ),
        (
            "Ledgers",
            (
                Panel("Ledgers by stage", 'headgate_switch_ledgers{cluster=~"$cluster"}', "{{cluster}}: {{stage}}"),
                Panel("Copy rate", 'rate(headgate_switch_copied_bytes_total{cluster=~"$cluster"}[$__rate_interval])',
                      "{{cluster}}", "Bps"),
                Panel("Lease held", 'headgate_switch_lease_held{cluster=~"$cluster"}', "{{cluster}}"),
            ),
        ),
    ),
)  # fmt: skip

BOOKIE_DISKS = Board(
    "bookie-disks",
    "Headgate: bookie disks",
    (
        (
            "Placement groups",
            (
                Panel("Publishing factor", 'headgate_bookie_throttle_factor{cluster=~"$cluster"}',
                      "{{cluster}}: {{group}}", "percentunit", steps=_LOW),
                Panel("Publish limits that Headgate has set", 'headgate_publish_bytes_per_second{cluster=~"$cluster"}',
                      "{{cluster}}: {{target}}", "Bps"),
                Panel("Publish limits that cannot be set", 'headgate_publish_failing{cluster=~"$cluster"}',
                      "{{cluster}}", kind="number"),
            ),
        ),
        (
            "Bookies",
            (
                Panel("Free share of the fullest ledger dir",
                      'min by (cluster, bookie) (headgate_bookie_dir_usable_bytes{cluster=~"$cluster"} / '
                      'headgate_bookie_dir_total_bytes)', "{{cluster}}: {{bookie}}", "percentunit"),
                Panel("Time to full",
                      'min by (cluster, bookie) (headgate_bookie_dir_seconds_to_full{cluster=~"$cluster"})',
                      "{{cluster}}: {{bookie}}", "s", steps=_SOON),
                Panel("Read-only bookies", 'sum by (cluster) (headgate_bookie_read_only{cluster=~"$cluster"})',
                      "{{cluster}}", kind="number"),
            ),
        ),
    ),
)  # fmt: skip

BOARDS = (FLEET, THROTTLE, BOOKIE_DISKS, ISOLATION, SESSIONS, SWITCHING)
