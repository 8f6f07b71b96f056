"""Fuzzes every parser of foreign input, guided by coverage: `make fuzz TARGET=codec SECONDS=300` installs Atheris.

A parser may raise its own errors and no others. The run ends at the first failure. The document is printed and stored
in `tests/data/fuzz/<target>/`, which every run of the tests parses again. `make thorough` mutates valid documents at
random, as `make unit` does a little.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import httpx
import yaml
from prometheus_client.exposition import generate_latest
from pydantic import TypeAdapter, ValidationError

from connectors.exporter.loop_view import LoopView
from connectors.http.rest import AdminError
from connectors.isolation.groups import parse_racks
from connectors.kafka.tail import Record
from connectors.pulsar.admin import AdminApi, BookieHttp
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.bookies import parse_affinity, parse_groups, parse_persistence
from connectors.zookeeper.json_znodes import owner_member
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.session import StatusError
from deploy.commands.check import effective_settings, settings_warnings, text_warnings
from deploy.settings.file import read_file, settings_of
from policies.registry import POLICIES, decided_topics, decision_types, observed_topic, observed_topics, reading_types
from policies.switching.state import Directive, RegistryEntry
from policies.units import UserError
from policies.wire import BadRecordError, DeadLetterReason, EventReader, ObservedRecord
from streaming.host import PolicyHost
from streaming.key_state import KeyState
from streaming.transition import reading_reader, reconcile
from tests.golden import read_reference
from tools.reference.catalogue import examples

_NOW_MS = 1_795_248_000_000
_TESTS = Path(__file__).parents[1] / "tests"
_OURS = ("policies.", "streaming.", "connectors.", "deploy.")


@dataclass(frozen=True)
class Target:
    """One parser, or several that read the same documents."""

    run: Callable[[bytes], object]
    expected: tuple[type[Exception], ...]
    """The errors it may raise."""
    seeds: Sequence[bytes]

    def __call__(self, document: bytes) -> None:
        """Parse a document; raises every error that is not expected."""
        with suppress(*self.expected):
            self.run(document)


_EVENTS = tuple(json.dumps(example).encode() for example in examples().values())
_READERS: tuple[EventReader[Any], ...] = (EventReader(reading_types()), EventReader(decision_types()))


def _read(document: bytes) -> None:
    for reader in _READERS:
        with suppress(BadRecordError):
            reader.read(document)


@cache
def _scenarios() -> Mapping[tuple[str, str], tuple[PolicyHost, KeyState | None, int]]:
    """By policy and cluster: the host, and the state and time at the end of the policy's reference course."""
    found: dict[tuple[str, str], tuple[PolicyHost, KeyState | None, int]] = {}
    for kind in POLICIES.values():
        course, before, now_ms = read_reference(kind.name), None, 0
        host = PolicyHost({kind.name: kind.settings.model_validate(course.settings)})
        key = (kind.name, course.cluster)
        for number, batch in enumerate(course.batches):
            records = [
                _observed(event.encode(), place, at_ms)
                for place, (_, at_ms, event) in enumerate(batch.records, 1000 * number)
            ]
            now_ms = batch.at_ms
            before = reconcile(host, "h", key, before, records, now_ms).key_state
        found[key] = host, before, now_ms
    return found


def _observed(event: bytes, offset: int, appended_ms: int) -> ObservedRecord:
    reading = reading_reader().read(event).data
    return ObservedRecord(f"h.{observed_topic(type(reading))}", 0, offset, appended_ms, event)


_POLICY_FAILED = f'"reason":"{DeadLetterReason.POLICY_FAILED.value}"'.encode()


def _step(document: bytes) -> None:
    """Step each policy with a reading, and once more a minute and a day later: none may fail."""
    for key, (host, before, now_ms) in _scenarios().items():
        try:
            records = [_observed(document, 1_000_000, now_ms)]
        except BadRecordError:
            return
        for later_ms in (1000, 60_000, 86_400_000):
            result = reconcile(host, "h", key, before, records, now_ms + later_ms)
            if failed := [output.value for output in result.outputs if _POLICY_FAILED in output.value]:
                raise AssertionError(f"policy {key[0]} failed: {failed[0].decode()[:1000]}")
            before, records = result.key_state, []


_documents = itertools.count()


@lru_cache(maxsize=1)
def _view(_number: int) -> LoopView:
    """One view for many documents, because making one takes long."""
    return LoopView("h", {})


def _export(document: bytes) -> None:
    """Export a document twice on each topic, as its own successor, and then scrape."""
    view = _view(next(_documents) // 50)
    for topic in (*observed_topics(), *decided_topics(), "dead-letters"):
        record = Record(f"h.{topic}", b"k", document, _NOW_MS)
        view.fold([record, record], live=True)
        view.fold([record._replace(value=None)], live=True) if topic in decided_topics() else None
        view.fold([record], live=False)
    scrape: Any = SimpleNamespace(collect=lambda: view.metrics(_NOW_MS + 10_000))
    generate_latest(scrape)


def _settings(document: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(document)
        file.flush()
        read = read_file(Path(file.name))
        list(text_warnings(read.tree))
        settings = settings_of(read)
        settings.fingerprint()
        list(settings_warnings(settings, is_empty=False))
        effective_settings(settings)


def _znode(document: bytes) -> None:
    owner_member(document)
    for parse in (parse_groups, parse_affinity, parse_persistence, parse_racks):
        with suppress(ValueError):
            parse(document)
    for kind in (Directive, RegistryEntry):
        with suppress(ValidationError):
            TypeAdapter(kind).validate_json(document, strict=True)


_answer = [b""]


@cache
def _asks() -> tuple[Callable[[], object], ...]:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=_answer[0]))
    api = AdminApi(PulsarAdmin(admin_url="http://p:8080"), transport)
    bookie = BookieHttp("http://b:8000", api.settings, transport)
    server = AdminServer("http://z:8080", 5.0, transport=transport)
    return (
        api.known_bookies, api.racks, api.tenants, lambda: api.affinity("t/n"), lambda: api.persistence("t/n"),
        lambda: api.lookup("t/n/x"), lambda: bookie.listed("rw"), server.role, lambda: server.sessions(lambda _: True),
        server.connections,
    )  # fmt: skip


def _rest(document: bytes) -> None:
    _answer[0] = document
    for ask in _asks():
        with suppress(AdminError, httpx.RequestError, StatusError):
            ask()


_ANSWERS = [
    b'["a","b"]',
    b'{"bookies":[{"bookieId":"b1:3181"}]}',
    b'{"default":{"b1:3181":{"rack":"/r1","hostname":"b1"}}}',
    b'{"bookkeeperAffinityGroupPrimary":"a,b","bookkeeperAffinityGroupSecondary":"c"}',
    b'{"bookkeeperEnsemble":3,"bookkeeperWriteQuorum":2,"bookkeeperAckQuorum":2}',
    b'{"brokerUrl":"pulsar://b1:6650","httpUrl":"http://b1:8080"}',
    b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":"a"}}',
    b'{"brokerId":"b1:8080","httpUrl":"http://b1:8080"}',
    b'{"server_stats":{"server_state":"leader","last_processed_zxid":1},"error":null}',
    b'{"expiry_time_to_session_ids":{"1":[1]},"session_id_to_ephemeral_paths":{"1":["/a"]},"error":null}',
    b'{"name":"new","metadata_service_uri":"zk://z:2181/l","epoch":3,"target":"new"}',
    b'{"connections":[{"session_id":1,"session_timeout":30000,"packets_received":2}],"error":null}',
]


def _settings_seeds() -> list[bytes]:
    """Settings as YAML, and as JSON, whose values can be mutated one by one."""
    text = (_TESTS / "data" / "replay" / "settings.yaml").read_bytes()
    kafka = {"bootstrap_servers": "k:9092", "sasl": {"mechanism": "PLAIN", "username": "u", "password": "secret-1"}}
    pulsar = {"admin_url": "https://p:8443", "token": "secret-2"}
    zookeeper = {"servers": "z:2181/c", "user": "u", "password": "secret-3", "timeout": "5s"}
    unload = {"member_url": "https://{host}:8443", "per_broker_interval": "10s"}
    watched = {"kafka": kafka, "pulsar": pulsar, "zookeeper": zookeeper, "unload": unload, "sessions": {}}
    whole = {**yaml.safe_load(text), "kafka": kafka, "clusters": {"c1": watched}, "http": {"port": 0}}
    return [text, json.dumps(whole).encode()]


TARGETS: Mapping[str, Target] = {
    "codec": Target(_read, (), _EVENTS),
    "steps": Target(_step, (), _EVENTS),
    "exporter": Target(_export, (), _EVENTS),
    "settings": Target(_settings, (UserError,), _settings_seeds()),
    "znodes": Target(_znode, (), _ANSWERS),
    "rest": Target(_rest, (), _ANSWERS),
}


def main() -> None:
    """Run one target."""
    options = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    options.add_argument("target", choices=TARGETS)
    options.add_argument("--seconds", type=int, default=300)
    given = options.parse_args()
    try:
        import atheris
    except ImportError:
        raise SystemExit("atheris is not installed: make fuzz does that") from None
    corpus = _TESTS / "data" / "fuzz" / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headgate-fuzz-") as folder:
        for number, seed in enumerate(TARGETS[given.target].seeds):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        _instrument(atheris.instrument_func)
        limits = (f"-max_total_time={given.seconds}", "-max_len=20000", "-timeout=60")
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus}/", folder, str(corpus)], TARGETS[given.target])
        atheris.Fuzz()


def _instrument(instrumented: Callable[[Any], Any]) -> None:
    """Instrument only Headgate's own functions: with all libraries the start would take minutes."""
    ours = [module for name, module in sys.modules.items() if name.startswith(_OURS)]
    for module in ours:
        for function in list(vars(module).values()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = instrumented(function).__code__


if __name__ == "__main__":
    main()
