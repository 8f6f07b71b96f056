"""Requests to the individual brokers of a watched cluster, in parallel: an adapter around kafka-python.

kafka-python's admin client does not suffice: `describe_log_dirs` asks one broker after the other and drops the
response's error code, its metadata leave out fenced brokers, and it never returns to the bootstrap servers. So requests
go through the connection manager beneath it; no other module knows about kafka-python.
"""

import ipaddress
import logging
import random
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataResponse

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.outcomes import error_in, most_telling
from connectors.kafka.sockets import with_sockets

HEDGE_SECONDS = 0.25
"""A broker that has not described the cluster by then is not waited for: another is asked too."""

_GRACE_SECONDS = 0.2  # kafka-python's own time-outs say more than ours, so they get the first word
_RESOLVERS = 4
_METADATA_VERSION = 9

# At debug level kafka-python logs the bytes of its requests, passwords among them; above that, each failed connection
# several times. What matters comes as an error to whoever asked.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

NodeId = int | str
NodeAnswer = tuple[NodeId, Any]


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A registered broker and where it listens."""

    broker: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class ClusterClient:
    """A client of one cluster. Use it from one thread, and close it.

    Args:
        connection: how to reach the cluster; its files are read now.
        timeout_seconds: how long each broker may take, connecting included.

    Raises:
        UserError: a file the connection names cannot be used.
    """

    def __init__(self, connection: KafkaConnection, timeout_seconds: float, *, client_id: str = "headgate") -> None:
        options, self._handshakes = with_sockets(connection.for_kafka_python())
        self._timeout_seconds = timeout_seconds
        self._tokens = options.get("sasl_oauth_token_provider")
        self._net = NetworkSelector(client_id=client_id)
        self._manager = KafkaConnectionManager(self._net, client_id=client_id, **options)
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix=f"{client_id}-resolve")
        self._bootstrap = {node.node_id: node.host for node in self._manager.cluster.bootstrap_brokers()}
        self._brokers: dict[int, KafkaBroker] = {}
        self._answering: set[NodeId] = set()
        self._resolving: set[NodeId] = set()
        self._preferred: NodeId | None = None
        self._net.start()

    def close(self) -> None:
        """Close all connections; what is still asked fails."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        try:
            self._manager.run(self._manager.close)
        finally:
            self._net.close()
            self._handshakes.close()

    def describe(self) -> tuple[KafkaBroker, ...]:
        """All registered brokers, fenced ones included where the cluster tells (Kafka 4.0 and later), by id.

        The broker that answered last time is asked first, and others beside it when it is slow or fails.

        Raises:
            KafkaError: nobody answered in time; the failure that says most.
        """
        if self._tokens is not None:
            self._tokens.renew_if_due()
        node, response = self._first_answer(self._candidates())
        error = error_in(response)
        if error is not None:
            raise error
        self._preferred = node if node not in self._bootstrap else None
        if not response.brokers:
            raise errors.MetadataEmptyBrokerList("the cluster names no brokers")
        brokers = sorted(
            (KafkaBroker(b.broker_id, b.host, b.port, b.rack, bool(b.is_fenced)) for b in response.brokers),
            key=lambda b: b.broker,
        )
        self._learn(brokers)
        return tuple(brokers)

    def log_dirs(self, brokers: Iterable[KafkaBroker]) -> Iterator[tuple[int, Any]]:
        """Ask brokers that `describe` gave for their log dirs, all at once.

        Yields:
            A broker's id with its response or its error, each as soon as it is known; all of them by the time-out.
        """
        answers: SimpleQueue[NodeAnswer] = SimpleQueue()
        waiting = [broker.broker for broker in brokers]
        for broker in waiting:
            # An empty list of topics asks for the volumes alone, None for every partition on them. One request each:
            # it remembers the version that its broker speaks.
            self._ask(broker, DescribeLogDirsRequest(topics=[]), answers)
        deadline = time.monotonic() + self._timeout_seconds + _GRACE_SECONDS
        while waiting:
            try:
                node, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            waiting.remove(int(node))
            yield int(node), answer
        self._answering.difference_update(waiting)
        for broker in waiting:
            yield broker, self._timed_out()

    def _candidates(self) -> list[NodeId]:
        """Whom to ask about the cluster, the most promising first: who answered, then known brokers, then bootstrap."""
        serving: list[NodeId] = [broker.broker for broker in self._brokers.values() if not broker.fenced]
        bootstrap: list[NodeId] = list(self._bootstrap)
        random.shuffle(serving)
        random.shuffle(bootstrap)
        return sorted(serving, key=lambda node: (node != self._preferred, node not in self._answering)) + bootstrap

    def _first_answer(self, candidates: list[NodeId]) -> NodeAnswer:
        answers: SimpleQueue[NodeAnswer] = SimpleQueue()
        to_ask, asked, failures = deque(candidates), 0, list[BaseException]()
        deadline = time.monotonic() + self._timeout_seconds + _GRACE_SECONDS
        while to_ask or len(failures) < asked:
            if to_ask:
                self._ask(to_ask.popleft(), DescribeClusterRequest(include_fenced_brokers=True), answers)
                asked += 1
            left_seconds = max(0.0, deadline - time.monotonic())
            try:
                node, answer = answers.get(timeout=min(left_seconds, HEDGE_SECONDS) if to_ask else left_seconds)
            except Empty:
                if time.monotonic() < deadline:
                    continue
                failures.append(self._timed_out())
                break
            if not isinstance(answer, BaseException):
                return node, answer
            failures.append(answer)
        raise most_telling(failures)

    def _ask(self, node: NodeId, request: Any, answers: "SimpleQueue[NodeAnswer]") -> None:
        """Send a request; its response or error comes to `answers` with the node."""
        if node in self._answering or _is_address(self._host(node)):
            self._send(node, request, answers)
        elif node in self._resolving:
            answers.put((node, errors.KafkaTimeoutError(f"{self._host(node)} has not been resolved yet")))
        else:
            self._resolving.add(node)
            # kafka-python resolves names on its one thread: a name server that hangs would hold up all brokers.
            self._resolvers.submit(self._resolve_and_send, node, request, answers)

    def _resolve_and_send(self, node: NodeId, request: Any, answers: "SimpleQueue[NodeAnswer]") -> None:
        try:
            socket.getaddrinfo(self._host(node), None, type=socket.SOCK_STREAM)
            self._send(node, request, answers)
        except OSError:
            answers.put((node, errors.KafkaConnectionError(f"{self._host(node)} does not resolve to an address")))
        except Exception as error:  # whoever asked must not wait for nothing
            answers.put((node, error))
        finally:
            self._resolving.discard(node)

    def _send(self, node: NodeId, request: Any, answers: "SimpleQueue[NodeAnswer]") -> None:
        timeout_ms = self._timeout_seconds * 1000

        def send() -> Any:
            # Not what another broker speaks, nor what this one spoke before an upgrade.
            self._manager.broker_version_data = None
            self._manager.reset_backoff(node)
            connection = self._manager.get_connection(node, timeout_ms=timeout_ms, refresh_metadata_on_err=False)
            return connection.send_request(request, request_timeout_ms=timeout_ms)

        def answered(answer: Any) -> None:
            if isinstance(answer, errors.RequestTimedOutError):
                answer = self._timed_out()
            (self._answering.discard if isinstance(answer, BaseException) else self._answering.add)(node)
            answers.put((node, answer))

        self._manager.call_soon(send).add_both(answered)

    def _learn(self, brokers: list[KafkaBroker]) -> None:
        """Tell kafka-python where the brokers are; those at a new address are connected anew."""
        for broker in brokers:
            known = self._brokers.get(broker.broker)
            if known is not None and (known.host, known.port) != (broker.host, broker.port):
                self._manager.call_soon(self._manager.close, broker.broker)
                self._answering.discard(broker.broker)
        self._brokers = {broker.broker: broker for broker in brokers}
        self._manager.call_soon(self._manager.cluster.update_metadata, _metadata(brokers))
        for node in self._bootstrap:
            self._answering.discard(node)
            self._manager.call_soon(self._manager.close, node)

    def _host(self, node: NodeId) -> str:
        host: str = self._brokers[node].host if isinstance(node, int) else self._bootstrap[node]
        return host

    def _timed_out(self) -> Exception:
        self._manager.call_soon(self._handshakes.end_older_than, self._timeout_seconds)
        error: Exception = errors.KafkaTimeoutError(f"no answer within {self._timeout_seconds:g} s")
        return error


def _metadata(brokers: Iterable[KafkaBroker]) -> Any:
    node, version = MetadataResponse.MetadataResponseBroker, _METADATA_VERSION
    nodes = [node(b.broker, b.host, b.port, b.rack, version=version) for b in brokers]
    return MetadataResponse(version=version, brokers=nodes, topics=[], cluster_id=None, controller_id=-1)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
