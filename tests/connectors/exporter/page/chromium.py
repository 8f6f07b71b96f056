"""A real Chromium for many pages: it is told what to do by its DevTools protocol, through pipes of its own."""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

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

    def dom(self, url: str, *, width: int = 1280, is_dark: bool = False) -> str:
        """What a page has become after some seconds of its own time."""
        user = self._call("Target.createBrowserContext")["browserContextId"]
        blank = {"url": "about:blank", "browserContextId": user, "width": width, "height": 900}
        target = self._call("Target.createTarget", **blank)["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", session, features=[scheme])
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
