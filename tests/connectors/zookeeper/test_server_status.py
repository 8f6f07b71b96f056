"""What servers tell about themselves and their sessions: answers captured from ZooKeeper 3.9.5, whole and broken."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.http.tls import Tls
from connectors.zookeeper import four_letter
from connectors.zookeeper.four_letter import FourLetterWords, check_refusal, parse_cons, parse_dump, parse_role
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.server_status import (
    Connection,
    ServerRole,
    SessionTable,
    StatusError,
    detail_of,
    outcome_of,
    session_name,
)
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


def lines(answer: str) -> list[str]:
    """As they come from the socket: without an empty one when the last one is ended."""
    return answer.removesuffix("\n").split("\n")


def every(path: str) -> bool:
    return True


def brokers_only(path: str) -> bool:
    return path.startswith("/loadbalance/brokers/")


class TestFourLetterWords:
    @pytest.mark.parametrize(
        ("name", "mode", "zxid", "lists"),
        [
            ("standalone", "standalone", 0x10, True),
            ("leader", "leader", 0x10000000E, True),
            ("follower", "follower", 0x10000000E, False),
        ],
    )
    def test_a_server_tells_what_it_is(self, name: str, mode: str, zxid: int, lists: bool) -> None:
        role = parse_role(lines(text(f"{name}.srvr.txt")))
        assert role == ServerRole(mode, zxid)
        assert role.lists_all_sessions is lists

    def test_a_dump_gives_sessions_by_expiry_and_nodes_by_session(self) -> None:
        table = parse_dump(lines(text("standalone.dump.txt")), every)
        assert set(table.expiries_ms) == {ONE, TWO}
        assert table.expiries_ms[TWO] - table.expiries_ms[ONE] == 24_000
        assert table.ephemerals == {ONE: PATHS}

    def test_sessions_of_one_time_share_it(self) -> None:
        table = parse_dump(lines(text("leader.dump.txt")), every)
        assert set(table.expiries_ms) == {FIRST, SECOND, THIRD}
        assert len(set(table.expiries_ms.values())) == 1

    def test_only_nodes_of_interest_are_kept(self) -> None:
        table = parse_dump(lines(text("standalone.dump.txt")), brokers_only)
        assert table.ephemerals == {ONE: ("/loadbalance/brokers/b1:8080",)}
        assert set(table.expiries_ms) == {ONE, TWO}

    def test_a_followers_dump_is_refused_as_it_does_not_know_when_sessions_end(self) -> None:
        with pytest.raises(StatusError, match="does not lead"):
            parse_dump(lines(text("follower.dump.txt")), every)

    @pytest.mark.parametrize("end", range(1, lines(text("standalone.dump.txt")).index("Connections dump:")))
    def test_a_dump_cut_short_is_an_error_and_never_a_shorter_list(self, end: int) -> None:
        with pytest.raises(StatusError, match="cut short"):
            parse_dump(lines(text("standalone.dump.txt"))[:end], every)

    @pytest.mark.parametrize(
        "date", ["Son Nov 21 13:27:31 CET 2026", "Sat Nov 21 13:27:31 GMT+02:00 2026", "Sat Nov 21 13:27:31 UTC 2026"]
    )
    def test_the_zone_of_a_date_does_not_matter(self, date: str) -> None:
        dump = text("standalone.dump.txt").replace("Sat Nov 21 13:29:28 UTC 2026", date)
        assert set(parse_dump(lines(dump), every).expiries_ms) == {ONE, TWO}

    @pytest.mark.parametrize("date", ["2026-11-21T13:27:31Z", "Sat Nix 21 13:27:31 UTC 2026", "soon"])
    def test_a_date_in_another_form_is_an_error_that_quotes_it(self, date: str) -> None:
        with pytest.raises(StatusError, match="date that is none"):
            parse_dump(["SessionTracker dump:", "Session Sets (1)/(1):", f"1 expire at {date}:", "\t0x1"], every)

    def test_connections_with_a_session_are_told_with_timeout_and_packets(self) -> None:
        assert set(parse_cons(lines(text("standalone.cons.txt")))) == {
            Connection(TWO, 30_000, 1),
            Connection(ONE, 6000, 22),
        }

    def test_a_server_with_no_client_at_all_has_no_connections(self) -> None:
        assert parse_cons([""]) == ()

    def test_connections_cut_short_are_an_error(self) -> None:
        with pytest.raises(StatusError, match="cut short"):
            parse_cons(lines(text("standalone.cons.txt"))[:-1])

    @pytest.mark.parametrize(
        ("answer", "outcome", "says"),
        [
            (lines(text("not-allowed.txt")), Outcome.UNSUPPORTED, "4lw.commands.whitelist"),
            (lines(text("no-quorum.txt")), Outcome.UNREACHABLE, "no quorum"),
            ([], Outcome.ERROR, "without an answer"),
        ],
        ids=["not allowed", "no quorum", "empty"],
    )
    def test_a_refusal_is_told_with_its_remedy(self, answer: list[str], outcome: Outcome, says: str) -> None:
        with pytest.raises(StatusError) as caught:
            list(check_refusal("dump", iter(answer)))
        assert caught.value.outcome is outcome
        assert says in detail_of("zk-1:2181", caught.value)
        assert detail_of("zk-1:2181", caught.value).startswith("zk-1:2181: ")

    @given(st.lists(st.text(alphabet="\t0x1af:/ Ganlobexpire(2)", max_size=20), max_size=20))
    def test_whatever_comes_is_parsed_or_an_error_of_the_server(self, answer: list[str]) -> None:
        for parse in (parse_role, parse_cons, lambda given: parse_dump(given, every)):
            with suppress(StatusError):
                parse(answer)


Handler = Callable[[socket.socket], None]


@contextmanager
def listening(handler: Handler) -> Iterator[str]:
    """A server that treats each connection so, and its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            while True:
                connection, _ = listener.accept()
                with connection:
                    handler(connection)
        except OSError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=5)


def answering(words: dict[str, str]) -> Handler:
    return lambda connection: connection.sendall(words[connection.recv(4).decode()].encode())


class TestConversation:
    def test_each_word_is_asked_over_a_connection_of_its_own(self) -> None:
        words = {word: text(f"standalone.{word}.txt") for word in ("srvr", "dump", "cons")}
        with listening(answering(words)) as server:
            source = FourLetterWords(server, 5.0)
            assert source.role().mode == "standalone"
            assert source.sessions(brokers_only).ephemerals == {ONE: ("/loadbalance/brokers/b1:8080",)}
            assert len(source.connections()) == 2

    def test_an_answer_in_small_pieces_is_put_together(self) -> None:
        def trickle(connection: socket.socket) -> None:
            connection.recv(4)
            for byte in text("standalone.dump.txt").encode():
                connection.sendall(bytes([byte]))

        with listening(trickle) as server:
            assert FourLetterWords(server, 5.0).sessions(every).ephemerals == {ONE: PATHS}

    def test_a_server_that_says_nothing_is_a_timeout(self) -> None:
        hold = threading.Event()

        def hang(connection: socket.socket) -> None:
            hold.wait()

        with listening(hang) as server:
            with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s") as caught:
                FourLetterWords(server, 0.2).role()
            assert outcome_of(caught.value) is Outcome.TIMEOUT
            hold.set()

    def test_a_server_that_never_comes_to_an_end_is_a_timeout_all_the_same(self) -> None:
        enough = threading.Event()

        def drip(connection: socket.socket) -> None:
            connection.recv(4)
            while not enough.wait(0.02):
                connection.sendall(b"Zookeeper version: x\n")

        with listening(drip) as server:
            with pytest.raises(TimeoutError):
                FourLetterWords(server, 0.3).role()
            enough.set()

    def test_an_endless_answer_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(four_letter, "MAX_ANSWER_BYTES", 200_000)

        def pour(connection: socket.socket) -> None:
            connection.recv(4)
            while True:
                connection.sendall(b"\t/a/node\n" * 1000)

        with listening(pour) as server, pytest.raises(StatusError, match="longer than"):
            FourLetterWords(server, 5.0).sessions(every)

    def test_a_server_that_is_not_there_is_unreachable(self) -> None:
        with pytest.raises(OSError, match="refused") as caught:
            FourLetterWords("127.0.0.1:1", 1.0).role()
        assert outcome_of(caught.value) is Outcome.UNREACHABLE


def admin(name: str) -> AdminServer:
    """An admin server that answers as the captured one did."""

    def answer(request: httpx.Request) -> httpx.Response:
        command = request.url.path.rpartition("/")[2]
        file = "no-quorum.dump.json" if name == "no-quorum" else f"{name}.{command}.json"
        return httpx.Response(200, content=text(file).encode())

    return AdminServer("http://zk-1:8080/", 1.0, transport=httpx.MockTransport(answer))


class TestAdminServer:
    @pytest.mark.parametrize(
        ("name", "mode", "zxid"),
        [("standalone", "standalone", 16), ("leader", "leader", 0x10000000E), ("follower", "follower", 0x10000000E)],
    )
    def test_a_server_tells_what_it_is(self, name: str, mode: str, zxid: int) -> None:
        assert admin(name).role() == ServerRole(mode, zxid)

    def test_a_dump_gives_the_same_as_the_word(self) -> None:
        table = admin("standalone").sessions(every)
        assert table == SessionTable({ONE: 1_565_500, TWO: 1_589_500}, {ONE: PATHS})
        assert admin("standalone").sessions(brokers_only).ephemerals == {ONE: ("/loadbalance/brokers/b1:8080",)}

    def test_connections_give_the_same_as_the_word(self) -> None:
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
            (httpx.Response(200, text=text("no-quorum.dump.json")), Outcome.UNREACHABLE, "no quorum"),
            (httpx.Response(200, text='{"error": "of its own"}'), Outcome.ERROR, "of its own"),
            (httpx.Response(200, text="<html>"), Outcome.ERROR, "not that of a ZooKeeper"),
            (httpx.Response(200, text='{"error": null}'), Outcome.ERROR, "not that of a ZooKeeper"),
            (httpx.Response(404), Outcome.ERROR, "admin_url"),
            (httpx.Response(401), Outcome.UNAUTHORIZED, "401"),
        ],
        ids=["no quorum", "its own error", "no JSON", "other JSON", "not found", "not let in"],
    )
    def test_what_is_no_answer_is_told_apart(self, response: httpx.Response, outcome: Outcome, says: str) -> None:
        source = AdminServer("http://a", 1.0, transport=httpx.MockTransport(lambda _: response))
        with pytest.raises(StatusError, match=says) as caught:
            source.sessions(every)
        assert caught.value.outcome is outcome

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (httpx.ConnectError("refused"), Outcome.UNREACHABLE),
            (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), Outcome.ERROR),
            (httpx.ReadTimeout(""), Outcome.TIMEOUT),
        ],
        ids=["refused", "certificate", "time-out"],
    )
    def test_a_server_without_an_answer_is_told_apart(self, error: httpx.HTTPError, outcome: Outcome) -> None:
        def fail(_: httpx.Request) -> httpx.Response:
            raise error

        with pytest.raises((StatusError, TimeoutError)) as caught:
            AdminServer("http://a", 1.0, transport=httpx.MockTransport(fail)).role()
        assert outcome_of(caught.value) is outcome


@contextmanager
def tls_server(certificate: Path) -> Iterator[int]:
    """Answers `srvr` and `server_stats`, and keeps connections for further requests; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    stats = b'{"server_stats":{"server_state":"leader","last_processed_zxid":1},"error":null}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(stats)

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
            while request := connection.recv(4096):
                if request == b"srvr":
                    connection.sendall(text("leader.srvr.txt").encode())
                    return
                connection.sendall(head + stats)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


@pytest.mark.parametrize(
    "source",
    [
        lambda port, tls: FourLetterWords(f"127.0.0.1:{port}", 5.0, tls),
        lambda port, tls: AdminServer(f"https://127.0.0.1:{port}", 5.0, tls),
    ],
    ids=["four-letter words", "admin server"],
)
def test_an_authority_that_is_trusted_no_longer_counts_no_longer(
    source: Callable[[int, Tls], FourLetterWords | AdminServer],
    certificate: Path,
    tmp_path: Path,
    issue: Callable[[], bytes],
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(certificate.read_bytes())
    with tls_server(certificate) as port:
        server = source(port, Tls(ca_file=trusted))
        assert server.role().mode == "leader"
        trusted.write_bytes(issue())
        with pytest.raises((OSError, StatusError), match="certificate verify failed"):
            server.role()
        trusted.write_bytes(certificate.read_bytes())
        assert server.role().mode == "leader"
        server.close()


@pytest.mark.parametrize(("number", "name"), [(1, "0x1"), (ONE, "0x1000017ca3a0001"), (-2, "0xfffffffffffffffe")])
def test_a_session_is_named_as_zookeeper_names_it(number: int, name: str) -> None:
    assert session_name(number) == name


def test_numbers_of_any_length_are_no_exception() -> None:
    line = f" /127.0.0.1:1[1](queued=0,recved={'9' * 5000},sent=1,sid=0x1,lop=PING,to=30000,lcxid=0x1)"
    assert parse_cons([line, ""]) == ()


def test_a_hostile_line_of_connections_takes_time_in_proportion_to_its_length() -> None:
    """A single expression with all fields would compare 10^14 combinations of them."""
    assert parse_cons(["recved=1," * 50_000 + "sid=0x1," * 50_000, ""]) == ()


def test_many_nodes_of_one_session_take_time_in_proportion_to_their_number() -> None:
    """One pass appends 100,000 nodes; joining tuples, it would copy five thousand million of them."""
    nodes = [f"\t/node/{number}" for number in range(100_000)]
    table = parse_dump(["ephemeral nodes dump:", "0x1:", *nodes, "Connections dump:"], lambda _: True)
    assert len(table.ephemerals[1]) == 100_000
