"""The rules for Prometheus and the dashboards for Grafana, as files."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from policies.registry import POLICIES
from policies.throttle import ThrottleSettings
from tools import generate
from tools.monitoring import dashboards
from tools.monitoring.panels import BOARDS, Board
from tools.reference.metrics_page import parts

RULES = (generate.ROOT / generate.GRAFANA).parent / "prometheus" / "headgate.rules.yaml"
TESTS = Path(__file__).parent / "headgate.rules.test.yaml"
KNOWN = {row.name for rows in parts().values() for row in rows} | {"up"}
RECORDED = set(re.findall(r"record: (\S+)", RULES.read_text()))
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


@pytest.mark.parametrize("board", BOARDS)
def test_no_panel_asks_for_a_metric_that_there_is_not(board: Board) -> None:
    for panel in board.panels:
        assert unknown(panel.query) | unknown(panel.limits) == set(), panel.title


def test_a_dashboard_asks_what_its_panels_ask() -> None:
    for board in BOARDS:
        written = json.loads(dashboards.files()[f"headgate-{board.name}.json"])
        shown = [panel for panel in written["panels"] if panel["type"] != "row"]
        assert [(p["title"], p["targets"][0]["expr"]) for p in shown] == [(p.title, p.query) for p in board.panels]
        limits = [p["targets"][1]["expr"] if p["targets"][1:] else "" for p in shown]
        assert limits == [p.limits for p in board.panels]
        steps = [
            [s["color"] for s in p["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])] for p in shown
        ]
        assert steps == [[colour for _, colour in p.steps] for p in board.panels]
        assert len({panel["id"] for panel in written["panels"]}) == len(written["panels"])


def test_a_panel_turns_red_where_the_rule_or_the_alert_fires() -> None:
    red = {p.title: v for b in BOARDS for p in b.panels for v, colour in p.steps if colour == "red" and v is not None}
    rules = RULES.read_text()
    assert f"latency_seconds:p99_5m > {red['Observation to decision, p99']:g}" in rules
    assert f"headgate_observation_age_seconds > {red['Age of the newest observation']:g}" in rules
    soon = [p.steps[1][0] for b in BOARDS for p in b.panels if p.title.startswith("Time to full")]
    assert soon == [ThrottleSettings().time_to_full_alert.total_seconds()] * 2


def test_dashboards_link_to_each_other_and_to_the_status_page() -> None:
    for name, text in dashboards.files().items():
        board = json.loads(text)
        others, page = board["links"]
        assert (others["type"], others["tags"], others["keepTime"], others["includeVars"]) == (
            "dashboards",
            board["tags"],
            True,
            True,
        ), name
        assert page["url"] == "${page}/"
        assert "page" in [variable["name"] for variable in board["templating"]["list"]]


def test_each_policy_has_a_dashboard() -> None:
    assert {board.name.replace("-", "_") for board in BOARDS} >= set(POLICIES)
