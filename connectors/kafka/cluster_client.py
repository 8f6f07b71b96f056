"""Requests to the individual brokers of a watched cluster, in parallel: an adapter around kafka-python.

kafka-python's admin client does not suffice. Its `describe_log_dirs` asks one broker after the other and drops the
response's error code, its metadata omit fenced brokers, and it never returns to the bootstrap servers. So requests go
through the connection manager beneath it.
"""

import logging
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from socket import SOCK_STREAM
from socket import socket as Socket  # noqa: N812  # a method below has to be named `socket`
from typing import Any, TypeVar

from kafka import errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataResponse

from connectors.collection import one_line, rank
from connectors.kafka.connection import KafkaConnection
from policies.observations import Outcome
from policies.units import UserError

# Maps errors of kafka-python to the outcome of a reading and a short reason.

# The first match counts, so a subclass stands before its base.
_OUTCOMES: tuple[tuple[type[BaseException], Outcome], ...] = (
    (errors.AuthorizationError, Outcome.UNAUTHORIZED),
    (errors.SaslAuthenticationFailedError, Outcome.UNAUTHORIZED),
    (errors.UnsupportedSaslMechanismError, Outcome.UNAUTHORIZED),
    (errors.IllegalSaslStateError, Outcome.UNAUTHORIZED),
    (errors.UnsupportedVersionError, Outcome.UNSUPPORTED),
    (errors.KafkaTimeoutError, Outcome.TIMEOUT),
    (errors.RequestTimedOutError, Outcome.TIMEOUT),
    (errors.KafkaConnectionError, Outcome.UNREACHABLE),
    (errors.NodeNotReadyError, Outcome.UNREACHABLE),
    (errors.UnknownBrokerIdError, Outcome.UNREACHABLE),
    (errors.BrokerNotAvailableError, Outcome.UNREACHABLE),
    (errors.Cancelled, Outcome.UNREACHABLE),
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error of kafka-python."""
    text = str(error)
    if isinstance(error, errors.KafkaConnectionError):
        # kafka-python distinguishes these only in the message.
        if "timed out" in text:
            return Outcome.TIMEOUT
        if "Handshake failed" in text or "SSL" in text:
            return Outcome.ERROR
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), Outcome.ERROR)


def detail_of(error: BaseException) -> str:
    """Return the error in one short line; kafka-python's errors hold no credentials."""
    if isinstance(error, UserError):
        return one_line(str(error))
    name = type(error).__name__
    # kafka-python prefixes its messages with this.
    text = re.sub(rf"^(?:\[Error -?\d+\] )?{name}(?:: |$)", "", str(error))
    text = re.sub(r"\b(\d+) E[A-Z]{3,}\b", lambda found: os.strerror(int(found[1])), text)  # such as 111 ECONNREFUSED
    return one_line(text or name.removesuffix("Error"))


def error_in(response: Any) -> Exception | None:
    """Return the error of a whole answer: the answer itself if it is an exception, else the one of its error code."""
    if isinstance(response, Exception):
        return response
    code = getattr(response, "error_code", errors.NoError.errno)
    if code == errors.NoError.errno:
        return None
    message = getattr(response, "error_message", None)
    error: Exception = errors.for_code(code)(*([message] if message else []))
    return error


# kafka-python drops data that arrives together with the end of the stream. A broker that refuses a login answers and
# closes at once, so the refusal would mostly look like a lost connection. Its hook for proxies takes other sockets.

PROXY_URL = "headgate://"
"""The `proxy_url` that makes kafka-python use these sockets; there is no proxy."""


class DataBeforeEofSocket(Socket):
    """Reports an end of the stream that follows data one call later, so that the data is handled."""

    _has_unhandled = False

    def __del__(self) -> None:
        self.close()  # kafka-python leaves this to the garbage collector, which warns, after failed connects

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive bytes, as the socket that it replaces."""
        has_unhandled, self._has_unhandled = self._has_unhandled, False
        data = super().recv(buflen, flags)
        if not data and has_unhandled:
            raise BlockingIOError
        self._has_unhandled = bool(data)
        return data


class _TlsSocket(DataBeforeEofSocket, ssl.SSLSocket):
    """The same with TLS."""


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """Connects without a proxy; kafka-python selects this class by the scheme of `PROXY_URL`."""

    SCHEMES = (PROXY_URL.partition(":")[0],)

    def socket(self, family: int = -1, kind: int = SOCK_STREAM, protocol: int = 0) -> Socket:
        """Make a socket."""
        return DataBeforeEofSocket(family, kind, protocol)


class HandshakeSelector(NetworkSelector):  # type: ignore[misc]  # kafka-python has no types
    """Ends a TLS handshake after some seconds without an answer.

    kafka-python waits without a limit. A stopped process, whose kernel still accepts connections, would block it
    forever.
    """

    def __init__(self, answer_seconds: float) -> None:
        super().__init__(client_id=_CLIENT_ID)
        self._answer_seconds = answer_seconds

    def wait_read(self, fileobj: Any, timeout_at: float | None = None) -> Any:
        """Wait until the socket can be read."""
        if isinstance(fileobj, ssl.SSLSocket) and fileobj.version() is None:  # the handshake has not ended
            timeout_at = time.monotonic() + self._answer_seconds
        return super().wait_read(fileobj, timeout_at)


_ASKED_AT_ONCE = 5
"""The number of brokers that are asked if the preferred one does not describe the cluster; the first answer counts."""

GRACE_SECONDS = 0.2
"""Added to our timeout, so that kafka-python's own timeout, which names the cause, comes first."""

_CLIENT_ID = "headgate"
_METADATA_VERSION = 9

# At debug level kafka-python logs the bytes of its requests, with passwords; at higher levels it logs each failed
# connection several times. The caller receives every error that matters.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

NodeId = int | str
NodeAnswer = tuple[NodeId, Any]
Node = TypeVar("Node", int, NodeId)


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A registered broker and its address."""

    broker: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class ClusterClient:
    """A client of one cluster. Use it from one thread, and close it.

    `timeout_seconds` limits the requests to each broker, connecting included.

    Raises:
        UserError: a file of the connection cannot be used.
    """

    cluster_id: str | None = None
    """Kafka's id of the cluster, from its last description."""

    def __init__(self, connection: KafkaConnection, timeout_seconds: float) -> None:
        options = connection.for_kafka_python()
        if "ssl_context" in options:
            options["ssl_context"].sslsocket_class = _TlsSocket
        self._timeout_seconds, self._no_answer = timeout_seconds, f"no answer within {timeout_seconds:g} s"
        self._tokens = options.get("sasl_oauth_token_provider")
        self._net = HandshakeSelector(timeout_seconds)
        self._manager = KafkaConnectionManager(self._net, client_id=_CLIENT_ID, proxy_url=PROXY_URL, **options)
        self._bootstrap: list[NodeId] = [node.node_id for node in self._manager.cluster.bootstrap_brokers()]
        self._brokers: dict[int, KafkaBroker] = {}
        self._preferred: NodeId | None = None
        self._net.start()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        try:
            self._manager.run(self._manager.close)
        finally:
            self._net.close()

    def describe(self) -> tuple[KafkaBroker, ...]:
        """Return all registered brokers by id; fenced ones, too, if the cluster is Kafka 4.0 or later.

        The broker that answered last time is asked first, as brokers learn of changes at different times. If it fails,
        several others are asked at once.

        Raises:
            KafkaError: no broker answered in time; of several failures the most telling one.
        """
        if self._tokens is not None:
            self._tokens.renew_if_due()
        node, response = self._first_answer()
        self._preferred, self.cluster_id = node if node not in self._bootstrap else None, response.cluster_id
        if not response.brokers:
            raise errors.MetadataEmptyBrokerList("the cluster names no brokers")
        brokers = sorted(
            (KafkaBroker(b.broker_id, b.host, b.port, b.rack, bool(b.is_fenced)) for b in response.brokers),
            key=lambda b: b.broker,
        )
        self._learn(brokers)
        return tuple(brokers)

    def log_dirs(self, brokers: Iterable[int], *, replicas: bool = False) -> Iterator[tuple[int, Any]]:
        """Ask brokers that `describe` returned for their log dirs, all in parallel.

        Yields a broker's id with its response or its error, each as soon as it arrives; all of them by the timeout.
        With `replicas` an answer has every replica, at 100 bytes a partition.
        """
        # An empty list of topics requests the volumes alone; None requests every partition on them.
        topics: list[Any] | None = None if replicas else []
        return self._ask_all(brokers, lambda _: DescribeLogDirsRequest(topics=topics))

    def _ask_all(self, nodes: Iterable[Node], make_request: Callable[[Node], Any]) -> Iterator[tuple[Node, Any]]:
        """Ask nodes in parallel; yield each with its response or error as soon as it arrives, all by the timeout.

        Each node gets a request object of its own, because it stores the version that its node speaks.
        """
        answers: SimpleQueue[Any] = SimpleQueue()
        waiting = list(nodes)
        for node in waiting:
            self._ask(node, make_request(node), answers)
        deadline = time.monotonic() + self._timeout_seconds + GRACE_SECONDS
        while waiting:
            try:
                node, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            waiting.remove(node)
            yield node, answer
        for node in waiting:
            yield node, errors.KafkaTimeoutError(self._no_answer)

    def _candidates(self) -> list[NodeId]:
        """Return the nodes to ask: the one that answered last, then known brokers, then bootstrap servers."""
        serving: list[NodeId] = [broker.broker for broker in self._brokers.values() if not broker.fenced]
        random.shuffle(serving)
        serving.sort(key=lambda node: node != self._preferred)
        return serving + random.sample(self._bootstrap, len(self._bootstrap))

    def _first_answer(self) -> NodeAnswer:
        candidates, failures = self._candidates(), list[Exception]()
        for asked in (candidates[:1], candidates[1 : 1 + _ASKED_AT_ONCE]):
            for node, answer in self._ask_all(asked, lambda _: DescribeClusterRequest(include_fenced_brokers=True)):
                if (error := error_in(answer)) is None:
                    return node, answer
                failures.append(error)
        raise min(failures, key=lambda error: rank(outcome_of(error)))  # the one that helps most to find the fault

    def _ask(self, node: NodeId, request: Any, answers: "SimpleQueue[NodeAnswer]") -> None:
        """Send a request; its response or error is put into `answers` with the node."""
        timeout_ms = self._timeout_seconds * 1000

        def send() -> Any:
            # Versions of another broker, or of this broker before an upgrade, must not be used.
            self._manager.broker_version_data = None
            self._manager.reset_backoff(node)
            connection = self._manager.get_connection(node, timeout_ms=timeout_ms, refresh_metadata_on_err=False)
            return connection.send_request(request, request_timeout_ms=timeout_ms)

        def answered(answer: Any) -> None:
            if isinstance(answer, errors.RequestTimedOutError):
                answer = errors.KafkaTimeoutError(self._no_answer)
            answers.put((node, answer))

        self._manager.call_soon(send).add_both(answered)

    def _learn(self, brokers: list[KafkaBroker]) -> None:
        """Set the brokers' addresses in kafka-python; close the connection of a broker whose address changed."""
        for broker in brokers:
            known = self._brokers.get(broker.broker)
            if known is not None and (known.host, known.port) != (broker.host, broker.port):
                self._manager.call_soon(self._manager.close, broker.broker)
        self._brokers = {broker.broker: broker for broker in brokers}
        node, version = MetadataResponse.MetadataResponseBroker, _METADATA_VERSION
        nodes = [node(b.broker, b.host, b.port, b.rack, version=version) for b in brokers]
        metadata = MetadataResponse(version=version, brokers=nodes, topics=[], cluster_id=None, controller_id=-1)
        self._manager.call_soon(self._manager.cluster.update_metadata, metadata)
        for each in self._bootstrap:
            self._manager.call_soon(self._manager.close, each)
