"""What comes of a request to Alertmanager, in one line without a secret."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.alertmanager.notifier import PostError, post_alerts
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.http.client import BearerAuth
from tests.cases import for_each

URL = "http://alertmanager:9093/prefix/"


def post(answer: Callable[[httpx.Request], httpx.Response], bodies: int = 1) -> None:
    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, auth=BearerAuth(lambda: "s3cret-token")) as client:
        alerts: list[dict[str, Any]] = [{"labels": {"alertname": str(number)}} for number in range(bodies)]
        post_alerts(client, URL, alerts)


def test_alerts_go_out_in_batches_with_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    post(answer, bodies=600)
    assert [str(request.url) for request in seen] == ["http://alertmanager:9093/prefix/api/v2/alerts"] * 3
    assert {request.headers["Authorization"] for request in seen} == {"Bearer s3cret-token"}


def test_an_alert_that_is_refused_keeps_back_no_others() -> None:
    answers = iter([httpx.Response(400, text="bad label"), httpx.Response(200), httpx.Response(503, text="later")])
    with pytest.raises(PostError, match="bad label"):
        post(lambda _: next(answers), bodies=600)
    assert next(answers, None) is None


def test_a_changed_token_file_counts_at_the_next_request(tmp_path: Path) -> None:
    file, sent = tmp_path / "token", []
    file.write_text("first-token")
    with AlertmanagerSettings(urls=("http://a:9093",), token_file=file).http_client() as client:
        for token in ("first-token", "second-token"):
            file.write_text(token)
            assert client.auth is not None
            sent += [each.headers["Authorization"] for each in client.auth.auth_flow(httpx.Request("GET", URL))]
    assert sent == ["Bearer first-token", "Bearer second-token"]


def test_with_nothing_to_tell_nothing_is_sent() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)

    post(answer, bodies=0)


def _raises(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    return answer


@for_each(
    ("answer", "said"),
    [
        (lambda _: httpx.Response(400, text="start time\nmust be before end time"), "status 400: start time must be"),
        (lambda _: httpx.Response(401, text="no token s3cret-token"), r"status 401: no token \*\*\*"),
        (lambda _: httpx.Response(302, headers={"Location": "http://elsewhere/"}), "status 302"),
        (lambda _: httpx.Response(500, text="x" * 1_000_000), "status 500: xxxx"),
        (_raises(httpx.ReadTimeout("slow")), "no answer in time"),
        (_raises(httpx.ConnectError("refused")), "refused"),
    ],
    ids=["refused", "token quoted back", "redirected", "talks for ever", "slow", "nobody there"],
)
def test_why_alerts_were_not_taken(answer: Callable[[httpx.Request], httpx.Response], said: str) -> None:
    with pytest.raises(PostError, match=said) as failed:
        post(answer)
    assert "s3cret" not in str(failed.value)
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 1_000
