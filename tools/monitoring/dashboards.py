"""Generates the Grafana dashboards from `tools.monitoring.panels`."""

import json
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphTresholdsStyleMode
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef, Threshold, ThresholdsMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.monitoring.panels import BOARDS, Board, Panel

_SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
_BUILDERS: dict[str, Any] = {"number": stat.Panel, "course": timeseries.Panel, "table": table.Panel}
_WIDTH, _HEIGHT = 24, 8
_PAGE = "http://127.0.0.1:9408"
"""Of the variable `page`: the exporter's address, as browsers reach it."""


def files() -> dict[str, str]:
    """Return the JSON of every dashboard by its file name; reproducible on any machine."""
    found = {}
    for board in BOARDS:
        built = json.loads(JSONEncoder(sort_keys=True).encode(_built(board)))
        for number, panel in enumerate(built["panels"], 1):
            panel["id"] = number
        found[f"headgate-{board.name}.json"] = json.dumps(_without_nulls(built), indent=2) + "\n"
    return found


def _without_nulls(value: Any) -> Any:
    """Remove None values, because Grafana uses its default for a missing value, but not for null."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _built(board: Board) -> Any:
    built = (
        dashboard.Dashboard(board.title)
        .uid(f"headgate-{board.name}")
        .tags(["headgate"])
        .refresh("10s")
        .time("now-1h", "now")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("cluster")
            .label("Cluster")
            .datasource(_SOURCE)
            .query("label_values(headgate_observation_age_seconds, cluster)")
            .multi(multi=True)
            .include_all(include_all=True)
            .all_value(".*")
        )
        .with_variable(dashboard.TextBoxVariable("page").label("Status page").default_value(_PAGE))
    )
    others = dashboard.DashboardLink("Headgate").type(DashboardLinkType.DASHBOARDS).tags(["headgate"])
    others = others.keep_time(keep_time=True).include_vars(include_vars=True).as_dropdown(as_dropdown=True)
    page = dashboard.DashboardLink("Status page").type(DashboardLinkType.LINK).url("${page}/")
    built = built.links([others, page.target_blank(target_blank=True)])
    for title, panels in board.rows.items():
        built = built.with_row(dashboard.Row(title))
        for panel in panels:
            built = built.with_panel(_panel(panel).span(_WIDTH // len(panels)).height(_HEIGHT))
    return built.build()


def _panel(panel: Panel) -> Any:
    query = prometheus.Dataquery().expr(panel.query).datasource(_SOURCE).ref_id("A")
    if panel.legend:
        query = query.legend_format(panel.legend)
    if panel.kind == "table":
        query = query.instant().format(PromQueryFormat.TABLE)
    shown = _BUILDERS[panel.kind]().title(panel.title).unit(panel.unit).datasource(_SOURCE).with_target(query)
    if panel.limits:
        limits = prometheus.Dataquery().expr(panel.limits).datasource(_SOURCE).ref_id("B")
        shown = shown.with_target(limits.legend_format("{{cluster}}: {{limit}} limit"))
    if panel.steps:
        steps = [Threshold(value, colour) for value, colour in panel.steps]
        shown = shown.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        dashed = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        shown = shown.thresholds_style(dashed)
    return shown.description(panel.description) if panel.description else shown
