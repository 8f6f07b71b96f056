"""What servers tell about themselves and their sessions: answers captured from ZooKeeper 3.9.5, whole and broken."""

import ssl
from pathlib import Path

import httpx
import pytest

from connectors.zookeeper.server_admin import AdminServer, Connection, ServerRole, SessionTable, session_name
from connectors.zookeeper.session import StatusError
from policies.observations import Outcome

CAPTURED = Path(__file__).parent / "captured"

ONE, TWO = 0x1000017CA3A0001, 0x1000017CA3A0002
FIRST, SECOND, THIRD = 0x1000017D78E0001, 0x2000017D78E0001, 0x3000017D7910002
PATHS = (
    "/odd/with space 0x1:\u2028x",
    "/loadbalance/brokers/b1:8080",
    "/namespace/public/default/0x00000000_0x40000000",
)


def text(name: str) -> str:
    return (CAPTURED / name).read_text()


def every(path: str) -> bool:
    return True


def brokers_only(path: str) -> bool:
    return path.startswith("/loadbalance/brokers/")


def admin(name: str) -> AdminServer:
    """An admin server that answers as the captured one did."""

    def answer(request: httpx.Request) -> httpx.Response:
        command = request.url.path.rpartition("/")[2]
        file = "no-quorum.dump.json" if name == "no-quorum" else f"{name}.{command}.json"
        return httpx.Response(200, content=text(file).encode())

    return AdminServer("http://zk-1:8080/", 1.0, transport=httpx.MockTransport(answer))


def refused_certificate() -> httpx.ConnectError:
    error = httpx.ConnectError("")
    error.__cause__ = ssl.SSLError("CERTIFICATE_VERIFY_FAILED")
    return error


class TestAdminServer:
    @pytest.mark.parametrize(
        ("name", "mode", "zxid"),
        [("standalone", "standalone", 16), ("leader", "leader", 0x10000000E), ("follower", "follower", 0x10000000E)],
    )
    def test_a_server_tells_what_it_is(self, name: str, mode: str, zxid: int) -> None:
        assert admin(name).role() == ServerRole(mode, zxid)

    def test_a_dump_gives_sessions_by_expiry_and_nodes_by_session(self) -> None:
        table = admin("standalone").sessions(every)
        assert table == SessionTable({ONE: 1_565_500, TWO: 1_589_500}, {ONE: PATHS})
        assert admin("standalone").sessions(brokers_only).ephemerals == {ONE: ("/loadbalance/brokers/b1:8080",)}

    def test_connections_have_timeout_and_packets(self) -> None:
        assert set(admin("standalone").connections()) == {Connection(TWO, 30_000, 0), Connection(ONE, 6000, 0)}

    def test_a_followers_dump_is_refused(self) -> None:
        with pytest.raises(StatusError, match="does not lead"):
            admin("follower").sessions(every)

    def test_encrypted_connections_count_and_those_without_a_session_do_not(self) -> None:
        body = (
            '{"connections": [{"session_id": 0}, {"remote_socket_address": "x"}], '
            '"secure_connections": [{"session_id": -2, "session_timeout": 9, "packets_received": 3}], "error": null}'
        )
        source = AdminServer("http://a", 1.0, transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body)))
        assert source.connections() == (Connection(0xFFFFFFFFFFFFFFFE, 9, 3),)

    @pytest.mark.parametrize(
        ("response", "outcome", "says"),
        [
            (httpx.ConnectError("refused"), Outcome.UNREACHABLE, "refused"),
            (refused_certificate(), Outcome.ERROR, "."),
            (httpx.ReadTimeout(""), Outcome.TIMEOUT, "."),
            (httpx.Response(200, text=text("no-quorum.dump.json")), Outcome.UNREACHABLE, "no quorum"),
            (httpx.Response(200, text='{"error": "of its own"}'), Outcome.ERROR, "of its own"),
            (httpx.Response(200, text="<html>"), Outcome.ERROR, "not that of a ZooKeeper"),
            (httpx.Response(200, text='{"error": null}'), Outcome.ERROR, "not that of a ZooKeeper"),
            (httpx.Response(404), Outcome.ERROR, "admin_url"),
            (httpx.Response(401), Outcome.UNAUTHORIZED, "401"),
        ],
        ids=[
            "refused", "certificate", "time-out", "no quorum", "its own error", "no JSON", "other JSON", "not found",
            "not let in",
        ],
    )  # fmt: skip
    def test_what_is_no_answer_is_told_apart(
        self, response: httpx.Response | httpx.HTTPError, outcome: Outcome, says: str
    ) -> None:
        def answer(_: httpx.Request) -> httpx.Response:
            if isinstance(response, httpx.HTTPError):
                raise response
            return response

        source = AdminServer("http://a", 1.0, transport=httpx.MockTransport(answer))
        with pytest.raises(StatusError, match=says) as caught:
            source.sessions(every)
        assert caught.value.outcome is outcome


@pytest.mark.parametrize(("number", "name"), [(1, "0x1"), (ONE, "0x1000017ca3a0001"), (-2, "0xfffffffffffffffe")])
def test_a_session_is_named_as_zookeeper_names_it(number: int, name: str) -> None:
    assert session_name(number) == name
