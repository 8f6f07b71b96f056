"""The REST verbs: who is let in, what is understood, and that each runs the command of the command line."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from connectors.switching.settings import SwitchAdminApi
from deploy.settings.application import Settings
from deploy.switch import admin_api
from deploy.switch.admin_api import SwitchAdmin
from deploy.switch.admin_server import BASE, AdminRequest, StatusAndBody, SwitchAdminServer
from deploy.switch.command_runner import CommandRunner
from policies.errors import UserError
from policies.switching.readings import CommandName

TOKEN = "a token"
API = SwitchAdminApi.model_validate({"port": 0, "token": TOKEN})


class Seen:
    """What reached the other side of the server."""

    def __init__(self) -> None:
        self.asked: list[AdminRequest] = []

    def answer(self, asked: AdminRequest) -> StatusAndBody:
        self.asked.append(asked)
        return HTTPStatus.OK, {"fine": True}


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def client(seen: Seen) -> Iterator[httpx.Client]:
    with SwitchAdminServer(API, seen.answer) as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, verify=False) as client:
            yield client


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", TOKEN])
def test_without_the_token_nobody_is_let_in(client: httpx.Client, seen: Seen, header: str | None) -> None:
    del client.headers["Authorization"]
    answer = client.get(f"{BASE}/status", headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in answer.text
    assert seen.asked == []


def test_body_and_query_are_understood(client: httpx.Client, seen: Seen) -> None:
    path = f"{BASE}/switch?target=old&dryRun=true"
    assert client.post(path, json={"target": "new"}, headers={"Idempotency-Key": "k"}).json() == {"fine": True}
    (asked,) = seen.asked
    assert (asked.method, asked.parts, asked.body, asked.key) == (
        "POST", ("switch",), {"target": "new", "dryRun": "true"}, "k",
    )  # fmt: skip
    assert asked.flag("dryRun", otherwise=False) is True


def test_it_encrypts_with_the_certificate_it_is_given(tmp_path: Path, seen: Seen) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", *curve, *name, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    api = SwitchAdminApi.model_validate({"port": 0, "token": TOKEN, "cert_file": cert, "key_file": key})
    with SwitchAdminServer(api, seen.answer) as server:
        headers, trusted = {"Authorization": f"Bearer {TOKEN}"}, ssl.create_default_context(cafile=str(cert))
        answer = httpx.get(f"https://127.0.0.1:{server.port}{BASE}/status", headers=headers, verify=trusted)
        assert answer.status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}{BASE}/status", headers=headers)
    assert len(seen.asked) == 1


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (f"{BASE}/switch", b"{"),
        (f"{BASE}/switch", b"[1]"),
        (f"{BASE}/switch", b"[" * 30_000),
        (f"{BASE}/switch", b'{"a":"\xff"}'),
        ("/other", b""),
        (f"{BASE}x", b""),
    ],
    ids=["no JSON", "no object", "nested without end", "not UTF-8", "another path", "a longer name"],
)
def test_what_cannot_be_understood_is_a_bad_request(
    client: httpx.Client, seen: Seen, path: str, content: bytes
) -> None:
    assert client.post(path, content=content).status_code == 400
    assert seen.asked == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"token": "a", "token_file": "/dev/null"},
        {"token": "a", "host": "0.0.0.0"},
        {"token": "a", "cert_file": "/dev/null"},
        {"token_file": "/nowhere"},
    ],
    ids=["no token", "two tokens", "plain beyond this machine", "half a certificate", "no such file"],
)
def test_settings_that_would_let_anybody_in_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SwitchAdminApi.model_validate(settings)


# --- the verbs


Sent = list[tuple[str, CommandName, dict[str, Any], CommandRunner]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What would be sent to the loop; the answers are those of `ANSWERS`."""
    sent: Sent = []

    def record(how: str) -> Any:
        def run(self: CommandRunner, *args: Any, **more: Any) -> int:
            name = next(CommandName(each) for each in args if each in {*CommandName})
            sent.append((how, name, more, self))
            self.console.print_json({"accepted": True, "code": None})
            return 0

        return run

    monkeypatch.setattr(CommandRunner, "run", record("run"))
    monkeypatch.setattr(CommandRunner, "confirm_and_run", record("asked"))
    about = {"name": "new", "uri": "zk+hierarchical://zk:2181/ledgers", "instance_id": "i", "root": "/ledgers"}
    monkeypatch.setattr(admin_api, "identify_cluster", lambda *_: dict(about))
    monkeypatch.setattr(SwitchAdmin, "_record", lambda _: {"source": "old", "active": "new"})
    return sent


def verb(method: str, path: str, **body: Any) -> tuple[HTTPStatus, Any]:
    parts = tuple(part for part in path.split("/") if part)
    return SwitchAdmin(Settings(), "c1", 1.0).answer(AdminRequest(method, parts, body, "key", "10.0.0.9"))


@pytest.mark.parametrize(
    ("method", "path", "body", "command", "args"),
    [
        ("POST", "new", {"status": "STANDBY"}, CommandName.REGISTER, {"status": "standby"}),
        ("POST", "new", {"metadataServiceUri": "zk+null://zk:2181/ledgers"}, CommandName.REGISTER, {"status": None}),
        ("DELETE", "old", {}, CommandName.UNREGISTER, {"name": "old"}),
        ("POST", "close-client/old", {}, CommandName.CLOSE_CLIENT, {"name": "old"}),
        ("POST", "rollback", {}, CommandName.ROLLBACK, {"attribution_only": True}),
        ("POST", "rollback", {"withBrokers": True}, CommandName.ROLLBACK, {"attribution_only": False}),
        ("POST", "cleanup", {}, CommandName.CLEANUP, {}),
        ("POST", "cleanup", {"dryRun": "true", "srcCluster": "old"}, CommandName.CLEANUP, {}),
        ("POST", "pause", {"dryRun": True}, CommandName.PAUSE, {}),
        ("POST", "abort", {}, CommandName.ABORT, {}),
        ("POST", "pause", {}, CommandName.PAUSE, {}),
        ("POST", "resume", {}, CommandName.RESUME, {}),
    ],
)
def test_each_verb_is_a_command(
    sent: Sent, method: str, path: str, body: dict[str, Any], command: CommandName, args: dict[str, Any]
) -> None:
    status, answer = verb(method, path, **body)
    assert (status, answer["accepted"]) == (HTTPStatus.OK, True)
    ((_, name, given, runner),) = sent
    assert name is command
    assert {key: given.get(key) for key in args} == args
    assert (runner.options.actor, runner.options.key, runner.console.yes) == ("rest@10.0.0.9", "key", True)
    is_dry = command is CommandName.CLEANUP or bool(body.get("dryRun"))
    assert runner.options.dry_run is is_dry, "nothing is deleted unless that is said"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "switch", {}, HTTPStatus.BAD_REQUEST),
        ("POST", "switch", {"target": 7}, HTTPStatus.BAD_REQUEST),
        ("POST", "new", {"status": "busy"}, HTTPStatus.BAD_REQUEST),
        ("POST", "new", {"metadataServiceUri": "zk+null://other:2181/ledgers"}, HTTPStatus.BAD_REQUEST),
        ("POST", "new", {"name": "other"}, HTTPStatus.BAD_REQUEST),
        ("POST", "rollback", {"withBrokers": "perhaps"}, HTTPStatus.BAD_REQUEST),
        ("POST", "rollback", {"withbrokers": True}, HTTPStatus.BAD_REQUEST),
        ("POST", "switch", {"target": "new", "dryRun": "perhaps"}, HTTPStatus.BAD_REQUEST),
        ("POST", "cleanup", {"dryRun": False, "maxDeletions": 10}, HTTPStatus.BAD_REQUEST),
        ("POST", "cleanup", {"dryRun": False, "force": True}, HTTPStatus.BAD_REQUEST),
        ("POST", "cleanup", {"dryRun": False, "srcCluster": "new"}, HTTPStatus.BAD_REQUEST),
        ("POST", "rollback", {"expectedEpoch": -1}, HTTPStatus.BAD_REQUEST),
        ("POST", "read-mode", {}, HTTPStatus.NOT_IMPLEMENTED),
        ("POST", "internal/promote-cursor", {}, HTTPStatus.NOT_IMPLEMENTED),
        ("GET", "a/b/c", {}, HTTPStatus.NOT_FOUND),
        ("GET", "switch", {}, HTTPStatus.NOT_FOUND),
    ],
)
def test_what_cannot_be_done_says_so_and_sends_nothing(
    sent: Sent, method: str, path: str, body: dict[str, Any], status: HTTPStatus
) -> None:
    found, answer = verb(method, path, **body)
    assert (found, sent) == (status, [])
    assert answer["reason"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"accepted": False, "code": "NOT_FOUND"}, 404),
        ({"accepted": False, "code": "URI_DUPLICATE"}, 400),
        ({"accepted": False, "code": "IN_USE"}, 409),
        ({"accepted": False, "code": None}, 409),
        ({"accepted": None, "code": None}, 504),
    ],
)
def test_a_refusal_has_the_status_of_its_code(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], status: int
) -> None:
    monkeypatch.setattr(CommandRunner, "confirm_and_run", lambda self, *_, **__: self.console.print_json(answer))
    found, said = verb("DELETE", "old")
    assert (int(found), said) == (status, answer)


def test_a_mistake_in_the_settings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise UserError("kafka.bootstrap_servers is not set")

    monkeypatch.setattr(CommandRunner, "confirm_and_run", fails)
    assert verb("POST", "pause") == (HTTPStatus.BAD_REQUEST, {"reason": "kafka.bootstrap_servers is not set"})


def test_it_serves_while_it_is_a_part_and_none_is_there_by_default() -> None:
    block: dict[str, Any] = {"zookeeper": {"servers": "zk:1"}, "bookkeeper": {"bootstrap": "o", "clusters": {"o": {}}}}
    off = Settings.model_validate({"clusters": {"c1": {**block, "switching": {}}}})
    assert list(admin_api.admin_api_components(off)) == []
    api = {"port": 0, "token": TOKEN}
    on = Settings.model_validate({"clusters": {"c1": {**block, "switching": {"admin_api": api}}}})
    (part,) = admin_api.admin_api_components(on)
    assert TOKEN not in json.dumps(on.model_dump(mode="json"))
    part.stop.set()
    thread = threading.Thread(target=part.run, args=(part.stop,))
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive()
