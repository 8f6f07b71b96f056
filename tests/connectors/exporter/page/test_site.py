"""The status page and its API over a loop in virtual time: true to what was decided, whatever anybody named."""

import html
import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from starlette.responses import Response

from connectors.exporter.page import site
from connectors.exporter.page.site import SHOWN_CLUSTERS
from policies.observations import Outcome, ReportResult
from policies.policy import LOOP
from policies.registry import POLICIES
from policies.throttle.readings import ReplicaSizes, TopicUsage, VolumeUsage
from tests.cases import for_each
from tests.connectors.exporter.loop import members, paused, quota, reported
from tests.connectors.exporter.page.world import World, log_dirs


@pytest.fixture
def world() -> World:
    return World().everything()


@pytest.fixture(scope="module")
def whole() -> World:
    """For tests that change nothing."""
    return World().everything()


def get(world: World, path: str) -> Response:
    answer = world.site.respond(path)
    assert answer is not None
    return answer


def told(world: World, path: str) -> Any:
    answer = get(world, f"/api/v1{path}")
    assert answer.media_type == "application/json"
    return json.loads(bytes(answer.body))


def page(world: World, path: str = "/") -> str:
    return bytes(get(world, path).body).decode()


def policy(world: World, cluster: str, name: str) -> Any:
    return next(p for p in told(world, f"/clusters/{cluster}")["policies"] if p["policy"] == name)


def test_the_factor_and_the_fullest_volumes_are_those_of_the_metrics(whole: World) -> None:
    throttle = policy(whole, "payments", "throttle")
    assert throttle["stale"] is False
    assert throttle["detail"]["factor"] == pytest.approx(1 / 3)
    first, second = throttle["detail"]["volumes"]
    assert (first["broker"], first["log_dir"], first["usable_bytes"]) == ("1", "/data", 1e11)
    assert first["used_ratio"] == pytest.approx(0.9)
    assert (first["soft_ratio"], first["hard_ratio"]) == (pytest.approx(0.8), pytest.approx(0.95))
    assert second["broker"] == "2"
    assert "0.33" in page(whole)
    assert throttle["latest"]["sentence"] in page(whole)


def test_the_topics_that_fill_the_limiting_volume_are_shown_with_what_is_not_kafkas() -> None:
    world = World()
    topics = (TopicUsage(topic="orders", size_bytes=3 * 10**9, bytes_per_second=1.5e6, share=0.6),)
    usage = VolumeUsage(
        log_dir="/data", kafka_bytes=3 * 10**9, other_bytes=10**9, other_bytes_per_second=1e6, other_share=0.4,
        topics=topics,
    )  # fmt: skip
    sizes = ReplicaSizes(cluster="payments", outcome=Outcome.OK, broker=1, volumes=(usage,))
    world.read(members(1), log_dirs(0.1), sizes)
    assert policy(world, "payments", "throttle")["detail"]["filled_by"]["topics"][0]["topic"] == "orders"
    lines = [
        " ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in re.findall(r"<li>(.*?)</li>", page(world), re.S)
    ]
    assert [html.unescape(line) for line in lines if "%" in line] == [
        "orders 3.0 GB 1.5 MB/s, 60 %",
        "not Kafka's 1.0 GB 1.0 MB/s, 40 %",
    ]
    assert re.search(r"Who fills broker 1 <bdi>/data</bdi>, read <time", page(world))


def test_a_volume_that_fills_says_when_it_is_full() -> None:
    world = World()
    for step in range(6):
        world.read(members(1), log_dirs(0.5 - 0.01 * step))
        world.later(seconds=60)
    world.seconds += 10
    (volume,) = policy(world, "payments", "throttle")["detail"]["volumes"]
    assert volume["seconds_to_full"] == pytest.approx(45 * 60 - 60, rel=0.1)
    assert "full in 4" in page(world)


def test_unassigned_bookies_sessions_and_a_switch_on_its_way(whole: World) -> None:
    isolation = policy(whole, "messaging", "isolation")["detail"]
    assert (isolation["unassigned_count"], isolation["unassigned"]) == (1, ["b3"])
    sessions = policy(whole, "messaging", "sessions")["detail"]
    assert sessions["roles"] == {"broker": {"established": 3, "connection_lost": 1}}
    assert [each["member"] for each in sessions["lapsing"]] == ["b2:8080"]
    switching = policy(whole, "pulsar-1", "switching")["detail"]
    assert (switching["source"], switching["target"], switching["stage"]) == ("old", "new", "build")
    assert switching["way"][:3] == ["triggered", "live_dual_read", "build"]
    assert "1 unassigned" in page(whole)
    for place in ('"past"><span>triggered', '"now" aria-current="step"><span>build', '"ahead"><span>cleanup'):
        assert f"<li class={place}" in page(whole)


def test_placement_groups_come_slowest_first_with_the_fullest_ledger_dirs(whole: World) -> None:
    disks = policy(whole, "c1", "bookie_disks")
    assert disks["detail"]["groups"] == [{"group": "default", "factor": 0.5, "limiting": "b2"}]
    fullest = disks["detail"]["dirs"][0]
    assert (fullest["bookie"], fullest["ledger_dir"], fullest["usable_bytes"]) == ("b2", "/l", 16e9)
    assert (fullest["used_ratio"], fullest["soft_ratio"], fullest["hard_ratio"]) == pytest.approx((0.84, 0.80, 0.88))
    assert "group <bdi>default</bdi>: 0.50 by <bdi>b2</bdi>" in page(whole)
    assert disks["latest"]["sentence"] in page(whole)


def test_alerts_and_decisions_come_with_their_sentences(world: World) -> None:
    alerts, decisions = told(world, "/alerts"), told(world, "/decisions")["decisions"]
    assert alerts["alert_count"] == len(alerts["alerts"]) >= 2
    assert {"volume-below-soft-limit", "unassigned-bookie"} <= {each["alert"] for each in alerts["alerts"]}
    assert all(each["summary"] in page(world) for each in alerts["alerts"])
    assert {each["policy"] for each in decisions} == set(POLICIES)
    assert [each["decided_at"] for each in decisions] == sorted((d["decided_at"] for d in decisions), reverse=True)
    world.later(minutes=2)
    world.read(members(1, 2), log_dirs(0.1), log_dirs(0.5, broker=2))
    assert told(world, "/decisions")["decisions"] == decisions, "what is only repeated is no news"


def test_clusters_that_need_a_look_are_counted_and_come_first(world: World) -> None:
    world.read(members(1), log_dirs(0.6, cluster="calm"), cluster="calm")
    counts = told(world, "/status")["cluster_counts"]
    assert counts["calm"] >= 1
    assert sum(counts.values()) == len(told(world, "/clusters")["clusters"])
    html = page(world)
    assert html.index('id="cluster-payments"') < html.index('id="cluster-calm"')
    assert re.search(r"<h1>\d of \d clusters need a look</h1>", html)


def test_what_nobody_keeps_up_is_stale_and_falls_back(world: World) -> None:
    world.later(minutes=10)
    throttle = policy(world, "payments", "throttle")
    assert throttle["stale"] is throttle["latest"]["stale"] is True
    assert throttle["detail"]["factor"] == pytest.approx(1 / 3), "a dead loop opens no gate"
    assert throttle["detail"]["brokers"] == {}
    assert "factor of the expired decision" in page(world)
    assert "nobody keeps it up" in page(world)
    assert told(world, "/status")["cluster_counts"]["stale"] >= 1


def test_an_order_that_nobody_begins_any_more_does_not_make_its_cluster_stale(world: World) -> None:
    world.later(minutes=10)
    world.watched("sessions", "messaging")
    assert policy(world, "messaging", "sessions")["stale"] is False
    world.later(minutes=10)
    assert policy(world, "messaging", "sessions")["stale"] is True, "nobody says any more that it is watched"


def test_where_nothing_is_current_or_known_the_page_says_so_first() -> None:
    world = World()
    assert "<h1>Nothing is observed yet</h1>" in page(world)
    world.read(members(1), log_dirs(0.5))
    world.later(minutes=10)
    assert "<h1>Nothing that was decided is current any more</h1>" in page(world)


def test_what_is_stale_is_not_drawn_on(world: World) -> None:
    world.site.record()
    world.later(minutes=10)
    world.site.record()
    drawn = told(world, "/history")["clusters"]["payments"]
    assert drawn["throttle factor"] == [pytest.approx(1 / 3), None]


def test_before_the_history_is_read_nothing_is_shown(world: World) -> None:
    world.behind = "the exporter is reading its history: 12 records"
    world.site.record()
    status = told(world, "/status")
    assert (status["complete"], status["problem"], status["clusters"]) == (False, world.behind, [])
    assert told(world, "/history") == {"interval_seconds": 15.0, "ends_at": None, "clusters": {}}
    assert world.behind in page(world)
    assert "payments" not in page(world)


def test_an_alert_about_the_loop_itself_leads_to_the_whole_loop(world: World) -> None:
    assert page(world, f"/clusters/{LOOP}") == page(world)


def test_a_loop_that_does_not_decide_is_said_before_anything_else_and_on_no_page_live(world: World) -> None:
    assert 'data-state="live"' in page(world)
    world.silence = "the query failed and is being restarted: the JVM is gone"
    world.later(seconds=2)
    assert told(world, "/status")["silence"] == world.silence
    assert "<h1>The loop does not decide</h1>" in page(world)
    assert "<title>The loop does not decide · Headgate</title>" in page(world)
    assert world.silence in page(world)
    for path in ("/", "/clusters/payments", "/alerts/volume-below-hard-limit"):
        assert 'data-state="silent"' in page(world, path)


HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "</style><svg onload=alert(1)>",
    "a'b\"c&amp;<!--",
    "\u202eexe.elif\u2066",
    "line\nbreak\x1b[31m\x9b\x00",
]


class Tags(HTMLParser):
    """What a browser makes of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def shape(html: str) -> list[tuple[str, frozenset[str]]]:
    return [(tag, frozenset(attributes)) for tag, attributes in Tags(html).found]


@for_each("name", HOSTILE)
def test_a_hostile_name_is_text_and_changes_no_markup(name: str) -> None:
    tame, hostile = World(), World()
    for world, cluster, log_dir in ((tame, "tame", "/tame"), (hostile, name, f"/{name}")):
        world.read(members(1, cluster=cluster), log_dirs(0.1, cluster, log_dir), cluster=cluster)
    assert shape(page(hostile)) == shape(page(tame))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page(hostile))
    assert told(hostile, "/clusters")["clusters"][0]["cluster"] == name
    raw = page(hostile, "/api/v1/status")
    assert raw.isascii()
    assert raw.count("\n") == 1
    assert told(hostile, f"/clusters/{quote(name, safe='')}")["cluster"] == name


def test_nothing_runs_that_stands_in_the_page_and_nothing_comes_from_elsewhere(whole: World) -> None:
    for tag, attributes in Tags(page(whole)).found:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "/").startswith("/")
            assert not (attributes.get(name) or "").startswith("//")
        assert tag not in ("style", "iframe", "object", "form")


def test_however_many_ask_the_picture_is_made_once_a_second_and_only_news_change_its_bytes(world: World) -> None:
    before, first = world.pictures, page(world)
    for _ in range(50):
        told(world, "/status")
    assert world.pictures == before + 1
    world.seconds += 1
    assert page(world) == first
    assert world.pictures == before + 2
    world.later(seconds=5)
    world.read(members(1, 2), log_dirs(0.02), log_dirs(0.5, broker=2))
    assert page(world) != first


def test_of_very_many_clusters_the_page_shows_so_many_and_the_api_all() -> None:
    world = World()
    for number in range(SHOWN_CLUSTERS + 5):
        name = f"c{number:03}"
        world.read(log_dirs(0.5, name), cluster=name)
    world.read(members(1), log_dirs(0.01))
    html = page(world)
    assert html.count('id="cluster-') == 1
    assert 'id="cluster-payments"' in html
    assert len(re.findall(r'<li class="calm" data-search="c\d+ calm"><a href="/clusters/c', html)) == SHOWN_CLUSTERS + 5
    assert len(told(world, "/clusters")["clusters"]) == SHOWN_CLUSTERS + 6


def test_a_very_long_name_is_shown_by_its_ends() -> None:
    world = World()
    world.read(members(1), log_dirs(0.1, log_dir="/" + "x" * 4000 + "/end"))
    html = page(world)
    assert "x/end</bdi>" in html
    assert "x" * 1200 not in html


def test_the_page_of_a_cluster_has_the_plot_of_a_window_and_its_values_as_a_table(world: World) -> None:
    world.site.record()
    found = {path: world.site.respond(f"/clusters/payments{path}") for path in ("", "/1h", "/6h", "/1d", "/2h", "/1h/")}
    html = {path: bytes(answer.body).decode() for path, answer in found.items() if answer is not None}
    assert html.keys() == {"", "/1h", "/6h", "/1d"}
    for path, text in html.items():
        shown = path or "/1h"
        assert f'<a href="/clusters/payments{shown}" aria-current="page">' in text, path
        assert text.count('<svg class="fill"') == 1, path
        assert "<td>broker 1 /data</td><td>100 GB</td><td>0.33</td>" in text, path


def test_the_page_of_a_fleet_has_few_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_MOST_PLOTS", 2)
    world = World()
    for name in ("a", "b", "c"):
        world.read(members(1, cluster=name), log_dirs(0.1, name), cluster=name)
    world.site.record()
    assert page(world).count('<svg class="fill"') == 2
    assert page(world).count('<article class="card warning"') == 3


@for_each(
    "path",
    [
        *("/api", "/api/", "/api/v1", "/api/v1/", "/api/v2/status", "/api/v1/status/", "/api/v1/nothing"),
        *("/api/v1/clusters/", "/api/v1/clusters/unknown", "/api/v1/clusters/payments/x"),
        *("/api/v1/clusters/../status", "/api/v1/clusters/%ff"),
    ],
)
def test_what_there_is_not_is_a_404_in_json(whole: World, path: str) -> None:
    answer = get(whole, path)
    assert (answer.status_code, json.loads(bytes(answer.body))["status"]) == (404, 404)


def test_a_policy_without_a_part_of_its_own_shows_its_sentence_and_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(POLICIES, "throttle", replace(POLICIES["throttle"], connectors=None))
    world = World().everything()
    throttle = policy(world, "payments", "throttle")
    assert throttle["detail"] is None
    assert throttle["numbers"] == {"factor": pytest.approx(1 / 3), "raw_factor": pytest.approx(1 / 3)}
    assert list(throttle["numbers"]) == ["factor", "raw_factor"], "as the model has them"
    html = page(world)
    assert throttle["latest"]["sentence"] in html
    assert "<dt>raw factor</dt>" in html


def filling() -> World:
    """A cluster below both limits, with a quota that is set, one that fails, and a pause."""
    world = World()
    world.read(members(1), log_dirs(0.01))
    at = world.now
    reports = [
        reported(quota(ReportResult.APPLIED, 65_536), at),
        reported(quota(ReportResult.FAILED, 65_536, "user=bob", detail="<b>no answer</b>"), at),
        paused(at, at + timedelta(hours=1)),
    ]
    world.view.fold(reports, live=True)
    world.seconds += 1
    return world


def test_what_is_set_who_paused_it_and_what_fails_is_on_the_page_and_in_the_api() -> None:
    world = filling()
    html = page(world)
    line = "PAUSED until 2026-11-21 09:00:00 UTC by alice (disks are swapped); wanted: factor 0.00; set: 65.5 kB/s "
    assert line + "a broker for user=alice since 2026-11-21 08:00:00 UTC by the quota actuator; FAILING since" in html
    assert "(&lt;b&gt;no answer&lt;/b&gt;)" in html
    assert '<span class="tag paused">paused</span>' in html
    assert '<span class="tag failing">not set</span>' in html
    (cluster,) = told(world, "/clusters")["clusters"]
    found = cluster["policies"][0]["in_force"]
    assert found["paused"] == {
        "until": "2026-11-21T09:00:00.000Z", "by": "alice", "reason": "disks are swapped", "keeps": True,
    }  # fmt: skip
    values = {each["target"]: (each["value"], each["number"], each["held"]) for each in found["effects"]}
    assert values == {"user=alice": ("65.5 kB/s a broker", 65_536, True), "user=bob": (None, None, False)}


def test_a_cluster_whose_actuator_fails_needs_a_look_although_no_alert_fires() -> None:
    world = World()
    world.read(members(1), log_dirs(0.6))
    world.view.fold([reported(quota(ReportResult.FAILED, 65_536, detail="no answer"), world.now)], live=True)
    (cluster,) = told(world, "/clusters")["clusters"]
    assert cluster["concern"] == "warning"


def test_a_cluster_and_an_alert_have_pages_of_their_own() -> None:
    world = filling()
    cluster, alert = page(world, "/clusters/payments"), page(world, "/alerts/volume-below-hard-limit")
    assert "wanted: factor 0.00" in cluster
    assert 'href="/alerts/volume-below-hard-limit"' in cluster
    assert "headgate explain payments</code>" in cluster, "the command to paste"
    assert "shorten the retention" in alert
    assert 'href="/clusters/payments"' in alert
    assert world.site.respond("/clusters/other") is None
    assert world.site.respond("/alerts/other") is None
    assert world.site.respond("/alerts/policy-failed") is not None, "an alert of any policy"


def test_a_soft_alert_is_shown_below_the_hard_one_that_explains_it() -> None:
    world = filling()
    alerts = {each["alert"]: each["inhibited_by"] for each in told(world, "/alerts")["alerts"]}
    assert alerts["volume-below-hard-limit"] is None
    assert alerts["volume-below-soft-limit"] == "volume-below-hard-limit"
    first, folded = page(world).split('<details id="more-alerts">')
    assert "volume below soft limit</a>" in folded
    assert "volume below soft limit</a>" not in first
