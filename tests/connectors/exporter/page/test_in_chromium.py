"""The status page in a real Chromium: it renews itself, fits a phone, and runs nothing that anybody named so."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.responses import HTMLResponse, Response

from connectors.http.server import MetricsServer
from tests.connectors.exporter.loop import START, members, paused
from tests.connectors.exporter.page.world import World, log_dirs

_BUDGET_MS = 12_000
"""Of a page's own time, which goes on as fast as the page has nothing to do."""


class Chromium:
    """One process; each page is one of a new user, who has seen nothing before."""

    def __init__(self, program: str, profile: Path) -> None:
        its_requests, self._requests = os.pipe()
        self._replies, its_replies = os.pipe()
        self._unread, self._events, self._count = b"", list[dict[str, Any]](), 0

        def take_pipes() -> None:
            """It reads from 3 and writes to 4."""
            reads, writes = os.dup(its_requests), os.dup(its_replies)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
        self._process = subprocess.Popen(
            [program, *options, f"--user-data-dir={profile}"],
            stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=take_pipes,
        )  # fmt: skip
        os.close(its_requests)
        os.close(its_replies)

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._requests)
        os.close(self._replies)

    def dom(self, url: str, *, width: int = 1280, is_dark: bool = False, zone: str = "UTC") -> str:
        """What a page has become after some seconds of its own time."""
        user = self._call("Target.createBrowserContext")["browserContextId"]
        blank = {"url": "about:blank", "browserContextId": user, "width": width, "height": 900}
        target = self._call("Target.createTarget", **blank)["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", session, features=[scheme])
        self._call("Emulation.setTimezoneOverride", session, timezoneId=zone)
        self._call("Emulation.setVirtualTimePolicy", session, policy="pause")
        self._call("Page.navigate", session, url=url)
        self._call("Emulation.setVirtualTimePolicy", session, policy="pauseIfNetworkFetchesPending", budget=_BUDGET_MS)
        self._await("Emulation.virtualTimeBudgetExpired", session)
        whole = self._call("Runtime.evaluate", session, expression="document.documentElement.outerHTML")
        self._call("Target.disposeBrowserContext", browserContextId=user)
        dom: str = whole["result"]["value"]
        return dom

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._count += 1
        said = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._requests, json.dumps(said).encode() + b"\0")
        while (heard := self._hear()).get("id") != self._count:
            self._events.append(heard)
        assert "result" in heard, heard
        result: dict[str, Any] = heard["result"]
        return result

    def _await(self, event: str, session: str) -> None:
        while not any((each.get("method"), each.get("sessionId")) == (event, session) for each in self._events):
            self._events.append(self._hear())
        self._events.clear()

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = os.read(self._replies, 65_536)
            assert more, "Chromium has ended"
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        return heard


CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: chromium-headless-shell)")

_SEEN = """
addEventListener("load", () => setInterval(() => {
  const root = document.documentElement;
  root.dataset.width = `${root.scrollWidth} of ${root.clientWidth}`;
  root.dataset.ground = getComputedStyle(document.body).backgroundColor;
  const names = [...document.querySelectorAll(".alerts b")].map((each) => each.getBoundingClientRect().width);
  root.dataset.narrowest = Math.floor(Math.min(...names));
  const right = (each) => each.getBoundingClientRect().right;
  const outside = (text) => right(text) > right(text.closest(".plot")) + 1;
  root.dataset.plots = document.querySelectorAll("svg.fill").length;
  root.dataset.outside = [...document.querySelectorAll("svg.fill text")].filter(outside).length;
  const curve = document.querySelector("svg.fill path.free");
  root.dataset.curve = curve && getComputedStyle(curve).stroke;
  root.dataset.unfolded = document.querySelectorAll("details[open]").length;
  if (!root.dataset.touched) {
    root.dataset.touched = "yes";
    document.querySelectorAll("details").forEach((each) => each.setAttribute("open", ""));
    document.getElementById("cluster-payments")?.setAttribute("data-kept", "");
  }
}, 100));
addEventListener("securitypolicyviolation", (event) => {
  document.documentElement.dataset.violation = event.violatedDirective;
});
"""


class Served:
    """A world behind a real server, with a script of the test's own that writes down what it sees."""

    def __init__(self, world: World, chromium: Chromium) -> None:
        self.world = world
        self._chromium = chromium
        self.asked = 0
        self._server = MetricsServer(
            CollectorRegistry(), host="127.0.0.1", port=0, healthy={}, ready={}, site=self._answer
        )

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _answer(self, path: str) -> Response | None:
        if path == "/seen.js":
            return Response(_SEEN, media_type="text/javascript")
        if path == "/":
            self.asked += 1
            if self.asked == 3:
                self.change()
        answer = self.world.site.respond(path)
        if path == "/" and answer is not None:
            seen = b'<script src="/seen.js"></script></head>'
            return HTMLResponse(bytes(answer.body).replace(b"</head>", seen))
        return answer

    def change(self) -> None:
        """What happens while the page is open."""

    def dom(self, *, width: int = 1280, is_dark: bool = False, zone: str = "UTC") -> str:
        """What the page has become after some seconds of its own time."""
        return self._chromium.dom(f"http://127.0.0.1:{self._server.port}/", width=width, is_dark=is_dark, zone=zone)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert CHROMIUM is not None
    with Chromium(CHROMIUM, tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture
def served(chromium: Chromium) -> Iterator[Served]:
    with Served(World().everything(), chromium) as served:
        yield served


def noted(dom: str, name: str) -> str | None:
    found = re.search(rf'<html[^>]* data-{name}="([^"]*)"', dom)
    return found[1] if found else None


@pytest.mark.parametrize(
    ("free", "later", "expected"),
    [
        (0.6, 0.01, r'<article class="card critical" id="cluster-other"'),
        (0.1, 0.08, r'80\.0 GB free(.|\n)*<article class="card warning" id="cluster-payments"[^>]* data-kept'),
        (0.6, 0.5, r'<details class="row calm" id="cluster-other"[^>]* open=(.|\n)*500 GB free'),
    ],
    ids=["what changed is renewed", "what did not is not touched", "what is unfolded stays so"],
)
def test_it_renews_itself(served: Served, free: float, later: float, expected: str) -> None:
    world = served.world
    world.read(members(1), log_dirs(free, cluster="other"), cluster="other")

    def fills() -> None:
        world.later(seconds=5)
        world.read(members(1), log_dirs(later, cluster="other"), cluster="other")

    served.change = fills  # type: ignore[method-assign]
    dom = served.dom()
    assert served.asked >= 4
    assert re.search(expected, dom)
    assert re.search(r'id="live"[^>]*>live<', dom)
    assert re.search(r"<time [^>]*>[0-9.]+ \w+ ago</time>", dom)
    assert noted(dom, "violation") is None


def test_a_server_that_does_not_answer_any_more_is_said(served: Served) -> None:
    def fails() -> None:
        served.asked = 2  # and so each time after it
        raise RuntimeError

    served.change = fails  # type: ignore[method-assign]
    dom = served.dom()
    assert re.search(r'id="live"[^>]*class="dead">no answer for \d+ s<', dom)
    assert 'id="cluster-payments"' in dom


@pytest.mark.parametrize("width", [390, 768, 960, 1280])
def test_it_and_its_plot_fit_their_window(served: Served, width: int) -> None:
    served.world.read(members(1), log_dirs(0.1, log_dir="/" + "x" * 300, broker=1), cluster="c" * 200)
    served.world.site.record()
    dom = served.dom(width=width)
    assert noted(dom, "width") == f"{width} of {width}"
    assert (noted(dom, "plots"), noted(dom, "outside")) == ("1", "0")


def test_on_a_phone_an_alert_that_nobody_repeated_leaves_room_for_its_name(served: Served) -> None:
    served.world.later(hours=28)
    dom = served.dom(width=375)
    assert "not repeated in time" in dom
    assert int(noted(dom, "narrowest") or 0) > 60  # a letter is ten wide


def test_it_is_dark_where_that_is_preferred(served: Served) -> None:
    served.world.site.record()
    light, dark = served.dom(), served.dom(is_dark=True)
    assert (noted(light, "curve"), noted(dark, "curve")) == ("rgb(20, 117, 125)", "rgb(87, 188, 196)")
    assert (noted(light, "ground"), noted(dark, "ground")) == ("rgb(244, 246, 244)", "rgb(15, 21, 20)")


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=document.title='owned'>", "<script>document.title='owned'</script>"]
)
def test_a_hostile_name_runs_nothing_not_even_when_it_comes_later(chromium: Chromium, name: str) -> None:
    with Served(World(), chromium) as served:
        served.world.read(members(1, cluster=name), log_dirs(0.1, name, f"/{name}"), cluster=name)

        def comes() -> None:
            served.world.later(seconds=5)
            served.world.read(log_dirs(0.01, name, f"/{name}/2"), cluster=name)
            served.world.site.record()

        served.change = comes  # type: ignore[method-assign]
        dom = served.dom()
    assert "owned</title>" not in dom
    assert noted(dom, "violation") is None
    assert "&lt;" in dom


def test_the_instants_of_a_sentence_are_local_times_and_utc_is_in_the_tooltip(served: Served) -> None:
    served.world.view.fold([paused(served.world.now, START + timedelta(hours=1))], live=True)
    dom = served.dom(zone="Europe/Berlin")
    shown = r'PAUSED until <time [^>]*title="2026-11-21 10:00:00 \S+, 2026-11-21 09:00:00 UTC">2026-11-21 10:00:00 '
    assert re.search(shown, dom)
