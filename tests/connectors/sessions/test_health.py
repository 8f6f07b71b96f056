"""The collector of brokers' health, on brokers that answer what a test wants, in virtual time."""

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from structlog.testing import capture_logs

from connectors.collection import PollMetrics
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.health import MemberHealthCollector
from connectors.sessions.registration import WatchedHealth
from policies.observations import Outcome, Reading
from policies.sessions.readings import MemberHealth
from tests.cases import for_each

HEALTHY = httpx.codes.OK
PATIENCE_SECONDS = 120.0


class Cluster:
    """Brokers behind one transport: who is listed, and how each answers when asked for its health."""

    together: threading.Barrier | None = None
    """As many requests as it says must be under way at once for any to be answered."""

    def __init__(self, **brokers: int | Exception) -> None:
        self.health: dict[str, int | Exception] = dict(brokers)
        self.listed: list[str] | int = list(brokers)
        self.own_lists: dict[str, list[str] | int] = {}
        self.answered: Callable[[], None] = lambda: None
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.together is not None:
            self.together.wait(PATIENCE_SECONDS)
        self.tokens.add(request.headers.get("Authorization"))
        self.answered()
        if request.url.path == "/admin/v2/brokers/payments":
            if isinstance(self.listed, int):
                return httpx.Response(self.listed)
            own = self.own_lists.get(request.url.host, self.listed)
            if isinstance(own, int):
                return httpx.Response(own)
            return httpx.Response(200, json=[f"{broker}:8080" for broker in own])
        assert request.url.path == "/admin/v2/brokers/health"
        self.asked.append(str(request.url.copy_with(path="/")))
        answer = self.health[request.url.host]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, json={"reason": "as told"} if answer != HEALTHY else None)


class Watch:
    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self.now = 0.0
        self.readings: list[Reading] = []
        self.collector = MemberHealthCollector(
            "payments", WatchedHealth(**settings), PulsarAdmin(admin_url="http://any:8080", token="secret-word"),
            self.readings.append, PollMetrics(CollectorRegistry()), clock=lambda: self.now,
            transport=httpx.MockTransport(cluster),
        )  # fmt: skip

    def poll(self, after: float = 15.0) -> dict[str, MemberHealth]:
        self.now += after
        self.readings.clear()
        self.collector.poll_once()
        return {each.member: each for each in self.readings if isinstance(each, MemberHealth)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(b1=HEALTHY, b2=HEALTHY)


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    watch = Watch(cluster)
    yield watch
    watch.collector.close()


def test_each_listed_broker_is_asked_at_its_own_address_with_the_token(watch: Watch, cluster: Cluster) -> None:
    assert watch.poll() == {
        member: MemberHealth(cluster="payments", member=member, healthy=True, listed=True)
        for member in ("b1:8080", "b2:8080")
    }
    assert sorted(cluster.asked) == ["http://b1:8080/", "http://b2:8080/"]
    assert cluster.tokens == {"Bearer secret-word"}


def test_a_list_that_cannot_be_had_is_told_once_and_so_is_its_return(watch: Watch, cluster: Cluster) -> None:
    with capture_logs() as lines:
        for listed in (["b1"], 404, 404, ["b1"], ["b1"]):
            cluster.listed = listed
            watch.poll()
    told = [(line["event"], line["cluster"]) for line in lines if "list of brokers" in line["event"]]
    assert told == [
        ("the list of brokers cannot be read", "payments"),
        ("the list of brokers can be read again", "payments"),
    ]


def failed_by(cause: OSError) -> httpx.ConnectError:
    error = httpx.ConnectError("in vain")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("answer", "outcome", "healthy"),
    [
        (200, Outcome.OK, True),
        (500, Outcome.OK, False),
        (503, Outcome.OK, False),
        (401, Outcome.UNAUTHORIZED, None),
        (403, Outcome.UNAUTHORIZED, None),
        (307, Outcome.ERROR, None),
        (httpx.ReadTimeout(""), Outcome.TIMEOUT, None),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Outcome.UNREACHABLE, None),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Outcome.UNREACHABLE, None),
        (OSError(errno.EHOSTUNREACH, "no route"), Outcome.TIMEOUT, None),
        (OSError(errno.ENETUNREACH, "no network"), Outcome.TIMEOUT, None),
        (socket.gaierror(-2, "no such name"), Outcome.TIMEOUT, None),
    ],
    ids=lambda value: str(value) or type(value).__name__,
)
def test_only_what_the_broker_says_itself_is_its_health_and_only_a_host_that_refuses_is_unreachable(
    watch: Watch, cluster: Cluster, answer: int | Exception, outcome: Outcome, healthy: bool | None
) -> None:
    cluster.health["b1"] = failed_by(answer) if isinstance(answer, OSError) else answer
    reading = watch.poll()["b1:8080"]
    assert (reading.outcome, reading.healthy, reading.listed) == (outcome, healthy, True)
    assert (reading.detail is None) == (healthy is True)
    assert "secret-word" not in (reading.detail or "")


@pytest.mark.parametrize(("listed", "expected"), [([], False), (500, None)], ids=["dropped off it", "no list"])
def test_a_broker_that_is_on_no_list_is_asked_on(
    watch: Watch, cluster: Cluster, listed: list[str] | int, expected: bool | None
) -> None:
    watch.poll()
    cluster.listed = listed
    found = {member: (each.healthy, each.listed) for member, each in watch.poll().items()}
    assert found == dict.fromkeys(("b1:8080", "b2:8080"), (True, expected))


def test_a_dead_broker_is_forgotten_in_the_end_and_a_living_one_is_not(cluster: Cluster) -> None:
    watch = Watch(cluster, forget_after="60s")
    watch.poll()
    cluster.listed = []
    cluster.health["b2"] = httpx.ConnectError("refused")
    for _ in range(3):
        assert set(watch.poll()) == {"b1:8080", "b2:8080"}
    for _ in range(20):
        assert set(watch.poll()) == {"b1:8080"}
    watch.collector.close()


def test_configured_brokers_are_asked_though_nobody_ever_listed_them(cluster: Cluster) -> None:
    cluster.health["b9"] = httpx.ConnectError("refused")
    watch = Watch(cluster, members=("b9:8080",), forget_after="1s")
    for _ in range(3):
        assert watch.poll()["b9:8080"].listed is False
    watch.collector.close()


@pytest.mark.parametrize(
    ("url", "asked"), [("http://{member}", "http://b1:8080/"), ("https://{host}:8443", "https://b1:8443/")]
)
def test_the_address_of_a_broker_is_made_from_its_name(url: str, asked: str) -> None:
    cluster = Cluster(b1=HEALTHY)
    watch = Watch(cluster, member_url=url)
    watch.poll()
    assert cluster.asked == [asked]
    watch.collector.close()


def test_a_name_that_is_no_address_is_not_asked(watch: Watch, cluster: Cluster) -> None:
    cluster.listed = ["b1", "evil/path?@"]
    assert set(watch.poll()) == {"b1:8080"}


@for_each("host", ["0.0.0.0", "localhost", "169.254.169.254"])
@for_each("where", ["on the list", "in the settings", "in an earlier reading"])
def test_nobody_is_asked_at_an_address_at_which_each_machine_finds_itself(host: str, where: str) -> None:
    cluster = Cluster(b1=HEALTHY)
    watch = Watch(cluster, **({"members": (f"{host}:8080",)} if where == "in the settings" else {}))
    cluster.listed = ["b1", host] if where == "on the list" else ["b1"]
    if where == "in an earlier reading":
        watch.collector.recall([MemberHealth(cluster="payments", member=f"{host}:8080", healthy=True)])
    reading = watch.poll()[f"{host}:8080"]
    assert (reading.outcome, reading.healthy, reading.listed) == (Outcome.ERROR, None, where == "on the list")
    assert (reading.detail or "").startswith(f"not asked: {host}:8080 is a")
    assert cluster.asked == ["http://b1:8080/"]
    watch.collector.close()


def test_the_same_again_is_published_every_quarter_of_a_minute(watch: Watch, cluster: Cluster) -> None:
    assert len(watch.poll()) == 2
    assert watch.poll(after=10) == {}
    cluster.health["b1"] = 500
    assert set(watch.poll(after=1)) == {"b1:8080"}
    assert set(watch.poll(after=4)) == {"b1:8080", "b2:8080"}
    assert set(watch.poll(after=1)) == {"b1:8080"}, "who is unwell is told of each time"


def test_who_is_missing_on_one_list_and_has_itself_on_its_own_is_listed(watch: Watch, cluster: Cluster) -> None:
    watch.poll()
    cluster.listed = ["b2"]
    cluster.own_lists = {"b1": ["b1", "b2"]}
    assert watch.poll()["b1:8080"].listed is True
    cluster.own_lists = {"b1": []}
    assert watch.poll()["b1:8080"].listed is False
    cluster.own_lists = {"b1": 500}
    assert watch.poll()["b1:8080"].listed is False


def test_a_reading_says_how_old_it_was_when_it_was_published(watch: Watch, cluster: Cluster) -> None:
    cluster.answered = lambda: setattr(watch, "now", watch.now + 0.5)
    assert watch.poll()["b1:8080"].age_ms >= 1000, "the list and two brokers took half a second each"


def test_all_brokers_and_the_list_are_waited_for_together() -> None:
    cluster = Cluster(**dict.fromkeys([f"b{number}" for number in range(12)], HEALTHY))
    watch = Watch(cluster)
    assert len(watch.poll()) == 12
    cluster.together = threading.Barrier(13)
    assert len(watch.poll()) == 12
    watch.collector.close()


@for_each(
    "settings",
    [
        {"member_url": "http://b1:8080"},
        {"member_url": "{member}"},
        {"member_url": "http://{member}@evil"},
        {"member_url": "http://{host}"},
        {"members": ("b1",)},
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WatchedHealth(**settings)


def test_who_was_asked_before_this_start_is_asked_though_nobody_lists_it(watch: Watch, cluster: Cluster) -> None:
    cluster.health["b9"] = HEALTHY
    watch.collector.recall(
        [
            MemberHealth(cluster="payments", member="b9:8080", healthy=True, listed=True),
            MemberHealth(cluster="other", member="b8:8080", healthy=True, listed=True),
            MemberHealth(cluster="payments", member="no address", healthy=True, listed=True),
        ]
    )
    assert {member: each.listed for member, each in watch.poll().items()} == {
        "b1:8080": True, "b2:8080": True, "b9:8080": False,
    }  # fmt: skip
