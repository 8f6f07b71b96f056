"""The rules for Prometheus, the dashboards for Grafana, and the other files of docker/, which Compose finds."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from connectors.kafka.topics import RUN_PARTS, rights_of
from deploy.settings.file import load_settings
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


# Compose and the users of Strimzi.

ROOT = Path(__file__).parents[2]


def test_the_users_of_strimzi_have_the_rights_of_their_parts_and_no_others() -> None:
    documents = yaml.safe_load_all((ROOT / "docker/strimzi-users.yaml").read_text())
    users = {each["metadata"]["name"]: each for each in documents}
    watched = {"headgate-watch", "headgate-throttle"}
    assert users.keys() - watched == {f"headgate-{part}" for part in (*RUN_PARTS, "topics", "command")}
    for name, user in users.items():
        is_watched = name in watched
        assert user["metadata"]["labels"]["strimzi.io/cluster"] == ("payments" if is_watched else "loop")
        if not is_watched:
            acls = user["spec"]["authorization"]["acls"]
            found = {(*acl["resource"].values(), each) for acl in acls for each in acl["operations"]}
            assert found == {
                (g.resource, f"headgate.{g.name}", "prefix" if g.is_prefix else "literal", each)
                for g in rights_of(name.removeprefix("headgate-"))
                for each in g.operations
            }


def test_the_settings_of_compose_are_good() -> None:
    assert load_settings(ROOT / "docker/headgate.yaml").clusters


def test_compose_mounts_only_what_is_there() -> None:
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    volumes = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    mounted = [volume.split(":")[0] for volume in volumes]
    files = [each for each in mounted if each.startswith(".")]
    assert len(files) >= 7
    assert [each for each in files if not (ROOT / "docker" / each).resolve().exists()] == []
    assert set(mounted) - set(files) == set(compose["volumes"])


def test_what_alertmanager_sends_to_people_is_printed_by_a_service_of_compose() -> None:
    receivers = yaml.safe_load((ROOT / "docs/reference/alertmanager.yaml").read_text())["receivers"]
    urls = [each["url"] for receiver in receivers for each in receiver.get("webhook_configs", ())]
    service = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["notifications"]
    assert service["network_mode"] == "service:alertmanager", "whose 127.0.0.1 it is"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    labels = {"severity": "critical", "alertname": "log-dir-offline", "subject": "a/1"}
    alert = {"status": "firing", "labels": labels, "annotations": {"summary": "it is away"}}
    command = [sys.executable, str(ROOT / "docker/notifications.py"), str(port)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as printing,
        httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client,
    ):
        try:
            for url in urls:
                assert ":5001/" in url
                sent = client.post(url.replace("5001", str(port)), json={"alerts": [alert]})
                assert sent.status_code == 204
        finally:
            printing.terminate()
        assert printing.stdout is not None
        assert printing.stdout.read().splitlines() == [
            f"{name}: firing critical log-dir-offline a/1: it is away" for name in ("pager", "tickets")
        ]


def test_the_dashboards_ask_the_source_that_compose_provides() -> None:
    source = yaml.safe_load((ROOT / "docker/grafana/datasource.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus"
    assert source["isDefault"]
