"""What the endpoint for rollovers answers."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.switching.rollover import (
    PATH,
    NotOwnedError,
    RolloverRefusedError,
    RolloverRequest,
    RolloverServer,
)
from policies.errors import UserError

REQUEST = {"topic": "persistent://t/n/topic", "cursor": "s1", "target": "new", "epoch": 3}


def raising(error: Exception) -> Callable[[RolloverRequest], int]:
    def roll_over(_: RolloverRequest) -> int:
        raise error

    return roll_over


def post(server: RolloverServer, path: str = PATH, **content: Any) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{server.port}{path}", timeout=5.0, verify=False, **content)


def test_a_rolled_over_cursor_is_answered_with_its_new_ledger() -> None:
    asked: list[RolloverRequest] = []

    def roll_over(request: RolloverRequest) -> int:
        asked.append(request)
        return 7

    with RolloverServer(roll_over) as server:
        answer = post(server, json=REQUEST)
    assert (answer.status_code, answer.json()) == (200, {"ledger_id": 7})
    assert asked == [RolloverRequest(topic="persistent://t/n/topic", cursor="s1", target="new", epoch=3)]


@pytest.mark.parametrize(
    ("error", "status", "answer"),
    [
        (NotOwnedError("not here"), 404, {"detail": "not here", "reason": "not_owned"}),
        (RolloverRefusedError("epoch 2"), 409, {"detail": "epoch 2", "reason": ""}),
        (KeyError("secret"), 500, {"detail": "the broker failed: KeyError", "reason": ""}),
    ],
)
def test_why_a_cursor_is_not_rolled_over_is_answered(error: Exception, status: int, answer: dict[str, str]) -> None:
    with RolloverServer(raising(error)) as server:
        said = post(server, json=REQUEST)
    assert (said.status_code, said.json()) == (status, answer)


@pytest.mark.parametrize(
    "content",
    [
        {"content": b"no JSON"},
        {"content": b""},
        {"json": {**REQUEST, "epoch": -1}},
        {"json": {**REQUEST, "epoch": "3"}},
        {"json": {**REQUEST, "topic": ""}},
        {"json": {"topic": "t"}},
        {"content": b" " * 65_537},
        {"content": iter([b"{}"])},
    ],
    ids=["no JSON", "nothing", "epoch below 0", "epoch as text", "no topic", "half", "too long", "no length"],
)
def test_what_is_no_request_is_turned_away_before_anybody_is_asked(content: dict[str, Any]) -> None:
    with RolloverServer(raising(AssertionError())) as server:
        assert post(server, **content).status_code == 400


def test_another_path_is_not_mistaken_for_a_topic_that_is_not_loaded() -> None:
    with RolloverServer(raising(AssertionError())) as server:
        answer = post(server, "/other", json=REQUEST)
    assert answer.status_code == 404
    assert answer.json()["reason"] == ""


def test_a_port_in_use_is_a_users_mistake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="is in use"):
        RolloverServer(raising(AssertionError()), port=taken.getsockname()[1])
