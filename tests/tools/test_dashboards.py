"""The rules for Prometheus and the dashboards for Grafana, as files."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.registry import POLICIES
from policies.throttle import ThrottleSettings
from tools import dashboards, generate
from tools.reference.pages import parts

RULES = (generate.ROOT / generate.GRAFANA).parent / "prometheus" / "headgate.rules.yaml"
TESTS = Path(__file__).parent / "headgate.rules.test.yaml"
KNOWN = {row.name for rows in parts().values() for row in rows} | {"up"}
RECORDED = set(re.findall(r"record: (\S+)", RULES.read_text()))
PANELS = [(f"{board}: {panel['title']}", panel) for (board, _), row in dashboards.ROWS.items() for panel in row]
NAME = re.compile(r"headgate_[a-z_]+")

with_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")


def promtool(*arguments: str, folder: Path) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@with_promtool
def test_the_rules_do_what_they_say(tmp_path: Path) -> None:
    for file in (RULES, TESTS):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in promtool("check", "rules", RULES.name, folder=tmp_path)
    assert "SUCCESS" in promtool("test", "rules", TESTS.name, folder=tmp_path)


def test_every_alert_is_tested() -> None:
    alerts = re.findall(r"alert: (\S+)", RULES.read_text())
    assert alerts, "there is none: this shows nothing"
    assert set(alerts) == set(re.findall(r"alertname: (\w+)", TESTS.read_text()))


def unknown(expression: str) -> set[str]:
    """Metrics in an expression that no part of Headgate has."""
    for name in RECORDED:
        expression = expression.replace(name, "")
    names = set(NAME.findall(expression))
    return {n for n in names if n not in KNOWN and n.removesuffix("_bucket") not in KNOWN}


def test_no_rule_asks_for_a_metric_that_there_is_not() -> None:
    assert unknown("headgate_no_such_metric") == {"headgate_no_such_metric"}
    assert unknown(re.sub(r"summary:.*|description:.*|#.*", "", RULES.read_text())) == set()


def test_no_panel_asks_for_a_metric_that_there_is_not() -> None:
    for title, panel in PANELS:
        for target in panel["targets"]:
            assert unknown(target["expr"]) == set(), title


def test_a_dashboard_has_its_panels_each_with_an_id() -> None:
    written = [json.loads(text)["panels"] for text in dashboards.files().values()]
    assert all([panel["id"] for panel in panels] == list(range(1, len(panels) + 1)) for panels in written)
    shown = [panel for panels in written for panel in panels if panel["type"] != "row"]
    assert [(p["title"], p["targets"]) for p in shown] == [(p["title"], p["targets"]) for _, p in PANELS]


def steps(panel: dashboards.Panel) -> Iterator[tuple[float, str]]:
    """The values from which a panel has another colour."""
    for step in panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ()):
        if "value" in step:
            yield step["value"], step["color"]


def test_a_panel_turns_red_where_the_rule_or_the_alert_fires() -> None:
    red = {title: value for title, panel in PANELS for value, colour in steps(panel) if colour == "red"}
    rules = RULES.read_text()
    assert f"latency_seconds:p99_5m > {red['fleet: Observation to decision, p99']:g}" in rules
    assert f"headgate_observation_age_seconds > {red['fleet: Age of the newest observation']:g}" in rules
    soon = [value for title, panel in PANELS if "Time to full" in title for value, _ in steps(panel)]
    assert soon == [ThrottleSettings().time_to_full_alert.total_seconds()] * 2


def test_dashboards_link_to_each_other_and_to_the_status_page() -> None:
    for name, text in dashboards.files().items():
        board = json.loads(text)
        others, page = board["links"]
        assert (others["type"], others["tags"]) == ("dashboards", board["tags"]), name
        assert (others["keepTime"], others["includeVars"]) == (True, True), name
        assert page["url"] == "${page}/"
        assert "page" in [variable["name"] for variable in board["templating"]["list"]]


def test_each_policy_has_a_dashboard() -> None:
    assert {board.replace("-", "_") for board, _ in dashboards.ROWS} >= set(POLICIES)
