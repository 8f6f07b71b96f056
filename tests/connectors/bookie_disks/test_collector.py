"""What the collector publishes, whatever the bookies answer: an outcome and a sentence, never a guess."""

from collections.abc import Mapping
from threading import Event
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from connectors.bookie_disks.collector import BookieDisksCollector, list_ledger_dirs, parse_java_number, read_thresholds
from connectors.bookie_disks.io import compare_limits, list_probes, list_remedies
from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import PollMetrics
from connectors.policy_io import ProbeContext
from connectors.pulsar.settings import PulsarAdmin
from deploy.processes.parts import Connections
from deploy.settings.application import Settings
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.observations import Outcome
from tests.cases import for_each

LIST = "bk1/api/v1/bookie/list_bookies"
CONFIG = {"bookiePort": "3181", "ledgerDirectories": "/a"}
ONE_DIR: Mapping[str, Any] = {
    LIST: {"bk1:3181": "bk1", "bk2:3181": "bk2"},
    **{
        f"{host}/api/v1/{path}": answer
        for host in ("bk1", "bk2")
        for path, answer in {
            "config/server_config": CONFIG,
            "bookie/state": {"readOnly": host == "bk2"},
            "bookie/info": {"freeSpace": 250, "totalSpace": 1000},
        }.items()
    },
}
"""By host and path; as recorded from a real bookie 4.17.3."""
TWO_DIRS: Mapping[str, Any] = {
    **ONE_DIR,
    "bk1/api/v1/config/server_config": {**CONFIG, "ledgerDirectories": "/data/l-0,/data/l-1"},
    "bk1/metrics": "bookie_ledger_dir__data_l_0_usage 90.0\nbookie_ledger_dir__data_l_1_usage{} 60\nother 1\n",
}


def poll(answers: Mapping[str, Any], **settings: Any) -> dict[str, BookieDisks]:
    """The readings of one poll, by bookie."""
    return polls(answers, **settings)[0]


def polls(*each: Mapping[str, Any], **settings: Any) -> list[dict[str, BookieDisks]]:
    """The readings of polls of one collector, by bookie."""

    def take(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/bookie/list_bookies" and request.url.params["type"] == "ro":
            return httpx.Response(200, json={})
        answer = each[len(taken)].get(f"{request.url.host}{request.url.path}", 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx.Response(answer, text="no")
        return httpx.Response(200, text=answer) if isinstance(answer, str) else httpx.Response(200, json=answer)

    watched = WatchedBookieDisks(bookie_url="http://bk1:8000", **settings)
    found: list[Any] = []
    admin = PulsarAdmin(admin_url="http://pulsar:8080")
    metrics = PollMetrics(CollectorRegistry())
    taken: list[dict[str, BookieDisks]] = []
    collector = BookieDisksCollector("c1", watched, admin, found.append, metrics, httpx.MockTransport(take))
    while len(taken) < len(each):
        found.clear()
        collector.poll_once()
        taken.append({reading.bookie: reading for reading in sorted(found, key=lambda reading: str(reading.bookie))})
    return taken


def test_each_registered_bookie_is_read_with_its_mode_and_thresholds() -> None:
    readings = poll(ONE_DIR)
    assert [(b, r.outcome, r.read_only) for b, r in readings.items()] == [
        ("bk1:3181", Outcome.OK, False), ("bk2:3181", Outcome.OK, True),
    ]  # fmt: skip
    (ledgers,) = readings["bk1:3181"].dirs
    assert (ledgers.log_dir, ledgers.usable_bytes, ledgers.total_bytes) == ("/a", 250, 1000)
    thresholds = readings["bk1:3181"].thresholds
    assert thresholds is not None
    assert (thresholds.read_only, thresholds.major_compaction, thresholds.minor_compaction) == (0.95, 0.90, 0.95)


def test_of_several_dirs_each_has_the_share_of_its_own_gauge() -> None:
    found = [(d.log_dir, d.usable_bytes, d.total_bytes) for d in poll(TWO_DIRS)["bk1:3181"].dirs]
    assert found == [("/data/l-0", 50, 500), ("/data/l-1", 200, 500)]


def test_a_threshold_of_the_configuration_counts() -> None:
    config = {**CONFIG, "diskUsageThreshold": "0.97", "diskUsageWarnThreshold": "0.8"}
    thresholds = poll({**ONE_DIR, "bk1/api/v1/config/server_config": config})["bk1:3181"].thresholds
    assert thresholds is not None
    assert (thresholds.read_only, thresholds.major_compaction) == (0.97, 0.8)


@for_each(
    ("answers", "outcome", "said"),
    [
        pytest.param({"bk1/api/v1/config/server_config": 404}, "unsupported", "no such API", id="another server"),
        pytest.param({"bk1/api/v1/bookie/info": {}}, "error", "freeSpace", id="half an answer"),
        pytest.param({"bk1/api/v1/bookie/info": "{"}, "error", "Invalid JSON", id="no JSON"),
        pytest.param({"bk1/api/v1/bookie/info": httpx.ConnectError("refused")}, "unreachable", "refused", id="off"),
        pytest.param({"bk1/api/v1/bookie/info": httpx.ReadTimeout("")}, "timeout", "no answer", id="silence"),
        pytest.param({"bk1/api/v1/bookie/state": 403}, "unauthorized", "403", id="forbidden"),
        pytest.param(
            {"bk1/api/v1/bookie/info": {"freeSpace": 2000, "totalSpace": 1000}}, "error", "2000 bytes are free of 1000",
            id="more free than there is",
        ),
        pytest.param(
            {"bk1/api/v1/config/server_config": {"bookiePort": "3999"}}, "error", "bookie bk1:3999 answers",
            id="a bookie that answers for another",
        ),
        pytest.param(
            {"bk1/api/v1/config/server_config": {"bookieId": "blue"}}, "error", "bookie blue answers", id="by its id",
        ),
        pytest.param({"bk1/metrics": 404}, "unsupported", "statsProviderClass", id="no gauges of several dirs"),
        pytest.param({"bk1/metrics": "bookie_ledger_dir__data_l_0_usage x\n"}, "error", "no number", id="a gauge"),
        pytest.param(
            {"bk1/metrics": "bookie_ledger_dir__data_l_0_usage 75\nbookie_ledger_dir__data_l_1_usage NaN\n"},
            "error", "no share", id="a gauge that was not set yet",
        ),
        pytest.param(
            {"bk1/metrics": "", "bk1/api/v1/bookie/info": {"freeSpace": 1, "totalSpace": 10**400}},
            "error", "totalSpace", id="more space than there can be",
        ),
        pytest.param(
            {"bk1/metrics": "bookie_ledger_dir_" + "_usage{" * 500_000 + "\nbookie_ledger_dir__data_l_0_usage x\n"},
            "error", "no number", id="a hostile line before it",
        ),
    ],
)  # fmt: skip
def test_a_bad_answer_of_one_bookie_is_an_outcome_with_a_sentence(
    answers: Mapping[str, Any], outcome: str, said: str
) -> None:
    several = TWO_DIRS if "bk1/metrics" in answers else ONE_DIR
    readings = poll({**several, **answers})
    bad = readings["bk1:3181"]
    assert (bad.outcome.value, bad.dirs) == (outcome, ())
    assert said in (bad.detail or "")
    assert readings["bk2:3181"].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("listed", "outcome", "said"),
    [
        (404, "unsupported", "no such API"),
        ({f"bk{n}:3181": "bk1" for n in range(10_001)}, "error", "10001 bookies are registered, more than 10000"),
        ({"": "bk1"}, "error", "an empty or an endless name"),
        ([], "error", "list_bookies"),
    ],
    ids=["HTTP off", "too many", "without a name", "a list"],
)
def test_bookies_that_cannot_be_listed_are_one_outcome_of_the_cluster(listed: Any, outcome: str, said: str) -> None:
    (reading,) = poll({**ONE_DIR, LIST: listed}).values()
    assert (reading.bookie, reading.outcome.value) == ("", outcome)
    assert said in (reading.detail or "")


NO_ENTRY: Mapping[str, Any] = {path: 404 for path in ONE_DIR if path.startswith("bk1/")}


@pytest.mark.parametrize(
    ("listed_by_bk2", "outcomes"),
    [
        ({"bk1:3181": "bk1", "bk2:3181": "bk2", "bk3:3181": "bk3"}, ["unsupported", "ok", "unsupported"]),
        ({"bk9:3181": "bk9"}, ["unsupported", "unsupported"]),
        (404, ["unsupported", "unsupported"]),
    ],
    ids=["it has the list", "the list of another cluster", "neither answers"],
)
def test_a_bookie_that_lists_no_more_is_replaced_by_a_known_one(listed_by_bk2: Any, outcomes: list[str]) -> None:
    bk2 = {"bk2/api/v1/bookie/list_bookies": listed_by_bk2}
    _, readings = polls(ONE_DIR, {**ONE_DIR, **NO_ENTRY, **bk2})
    assert [reading.outcome.value for reading in readings.values()] == outcomes


def test_a_bookie_that_is_slow_delays_no_reading_of_another_one() -> None:
    """A reading counts from its publication."""
    is_published = Event()

    def publish(reading: Any) -> None:
        if reading.bookie == "bk2:3181":
            is_published.set()

    def take(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/bookie/list_bookies" and request.url.params["type"] == "ro":
            return httpx.Response(200, json={})
        place = f"{request.url.host}{request.url.path}"
        if place == "bk1/api/v1/bookie/info":
            assert is_published.wait(30)
        return httpx.Response(200, json=ONE_DIR[place])

    watched, admin = WatchedBookieDisks(bookie_url="http://bk1:8000"), PulsarAdmin(admin_url="http://pulsar:8080")
    metrics = PollMetrics(CollectorRegistry())
    BookieDisksCollector("c1", watched, admin, publish, metrics, httpx.MockTransport(take)).poll_once()


def test_a_bookie_with_an_id_that_is_no_address_needs_one_in_the_settings() -> None:
    named = {**ONE_DIR, LIST: {"blue/x": None}}
    assert "name its address in urls" in (poll(named)["blue/x"].detail or "")
    blue = {**named, "bk1/api/v1/config/server_config": {**CONFIG, "bookieId": "blue/x"}}
    assert poll(blue, urls={"blue/x": "http://bk1:8000"})["blue/x"].outcome is Outcome.OK


def test_the_doctor_names_the_setting_that_a_bookie_without_http_lacks() -> None:
    named = {"pulsar": {"admin_url": "http://p"}, "bookie_disks": {"bookie_url": "http://b"}}
    cluster = Settings.model_validate({"clusters": {"c1": named}}).clusters["c1"]
    (without, *_) = poll({}).values()
    (remedy,) = list_remedies(cluster, without)
    assert without.outcome is Outcome.UNSUPPORTED
    assert remedy.startswith("bookkeeper.conf: httpServerEnabled=true")
    assert [*list_remedies(cluster, poll(ONE_DIR)["bk1:3181"])] == []


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, ["hard limit above the bookies' thresholds"]),
        (
            {"publish": {"by": "namespace"}},
            ["admin REST, to set publish limits", "hard limit above the bookies' thresholds"],
        ),
    ],
    ids=["watched", "carried out"],
)
def test_the_doctor_asks_for_the_rights_that_publish_limits_need(more: Mapping[str, Any], asked: list[str]) -> None:
    block = {"pulsar": {"admin_url": "http://p"}, "bookie_disks": {"bookie_url": "http://b"}, **more}
    settings = Settings.model_validate({"clusters": {"c1": block}})
    with Connections(settings) as connections:
        context = ProbeContext("c1", settings.clusters["c1"], BookieDisksSettings(), connections)
        assert [probe.asks for probe in list_probes(context)] == asked


@pytest.mark.parametrize(
    ("hard", "outcome", "said"),
    [
        (0.12, Outcome.OK, "2 bookies compared"),
        (0.10, Outcome.ERROR, "at the hard limit bk1:3181, bk2:3181 suspend compaction already"),
    ],
)
def test_the_doctor_compares_the_hard_limit_with_the_bookies_own_thresholds(
    hard: float, outcome: Outcome, said: str
) -> None:
    settings = BookieDisksSettings.model_validate({"hard": {"available_ratio_below": hard}})
    result = compare_limits([*poll(ONE_DIR).values()], settings)
    assert (result.outcome, result.detail) == (outcome, said)


# --- a bookie's configuration: paths and numbers as Java reads them


@for_each(
    ("text", "number"),
    [
        ("0.95", 0.95), ("0.95f", 0.95), ("0.95F", 0.95), ("1d", 1.0), ("1.D", 1.0), (".9", 0.9), ("+0.9", 0.9),
        (" 0.95\t", 0.95), ("9.5e-1", 0.95), ("95E-2f", 0.95), ("0,95", None), ("95%", None), ("", None), ("f", None),
        ("0_9", None), ("NaN", None), ("nan", None), ("Infinity", None), ("0.9.5", None), ("0.95 f", None),
        ("[0.9, 0.8]", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_java_reads_them(text: str, number: float | None) -> None:
    assert parse_java_number(text) == number


def test_what_is_no_share_is_said_and_the_other_threshold_stands() -> None:
    found, problem = read_thresholds({"diskUsageThreshold": "95", "diskUsageWarnThreshold": "0.9f"})
    assert found is not None
    assert (found.read_only, found.major_compaction, found.minor_compaction) == (None, 0.9, None)
    assert problem == "diskUsageThreshold is '95', and should be a share from 0 to 1, such as 0.95"
    found, problem = read_thresholds({"diskUsageThreshold": "x", "diskUsageWarnThreshold": "y"})
    assert found is None
    assert problem is not None
    found, problem = read_thresholds({})
    assert found is not None
    assert (found.read_only, found.major_compaction, problem) == (0.95, 0.9, None)


@pytest.mark.parametrize(
    ("text", "dirs"),
    [
        ("[/mnt/l0/, //mnt//l1//]", ("/mnt/l0", "/mnt/l1")),
        ("/mnt/l0,/mnt/l0/", ("/mnt/l0",)),
        ("/", ("/",)),
        ("data/bk/", ("data/bk",)),
    ],
)
def test_dirs_are_written_as_java_writes_paths(text: str, dirs: tuple[str, ...]) -> None:
    assert list_ledger_dirs({"ledgerDirectories": text}) == dirs
