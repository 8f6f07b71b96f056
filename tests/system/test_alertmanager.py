"""Alerts of the loop in a real Alertmanager, with the configuration of the references and a receiver that listens."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.kafka.connection import KafkaConnection
from tests.connectors.exporter.loop import ALERTS, Loop, log_dirs, members
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tools.generate import REFERENCE, ROOT

RUNNING = shutil.which("prometheus-alertmanager")
pytestmark = pytest.mark.skipif(RUNNING is None, reason="Debian's prometheus-alertmanager is not installed")


class Receiver:
    """What takes Alertmanager's notifications: who was told of what, by receiver and status."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    labels = alert["labels"]
                    receiver.told.append(
                        (self.path.lstrip("/"), alert["status"], labels["alertname"], labels["subject"])
                    )
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, receiver: str) -> set[tuple[str, str, str]]:
        return {told[1:] for told in self.told if told[0] == receiver}


class Alertmanager:
    """A real one, that forgets everything when it is started anew."""

    def __init__(self, folder: Path, port: int, receiver: Receiver) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._listen = f"127.0.0.1:{port}"
        self._file = folder / "alertmanager.yaml"
        self._file.write_text(yaml.safe_dump(self._configuration(receiver)))
        self._starts = 0

    def _configuration(self, receiver: Receiver) -> dict[str, Any]:
        """The references', but quick, and with our receiver."""
        given: dict[str, Any] = yaml.safe_load((ROOT / REFERENCE / "alertmanager.yaml").read_text())
        given["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        for each in given["receivers"]:
            for webhook in each.get("webhook_configs", ()):
                webhook["url"] = webhook["url"].replace(":5001", f":{receiver.server.server_port}")
        return given

    @contextmanager
    def running(self) -> Iterator[None]:
        self._starts += 1
        arguments = [
            str(RUNNING), f"--config.file={self._file}", f"--storage.path={self._folder}/data-{self._starts}",
            f"--web.listen-address={self._listen}", "--cluster.listen-address=", "--log.level=warn",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
            try:
                eventually("Alertmanager is ready", lambda: True if self._is_ready() else None)
                yield
            finally:
                process.kill()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", trust_env=False).is_success
        except httpx.RequestError:
            return False

    def states(self) -> dict[tuple[str, str], str]:
        """By alert and subject: `active` or `suppressed`."""
        given = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False).json()
        return {(a["labels"]["alertname"], a["labels"]["subject"]): a["status"]["state"] for a in given}


@contextmanager
def notifying(connection: KafkaConnection, topic: str, url: str) -> Iterator[Notifier]:
    settings = AlertmanagerSettings.model_validate({"urls": (url,), "resend_interval": "1s"})
    notifier = Notifier(connection, [topic], settings, NotifierMetrics(CollectorRegistry()))
    stop = threading.Event()
    thread = threading.Thread(target=notifier.run, args=(stop,))
    thread.start()
    try:
        yield notifier
    finally:
        stop.set()
        thread.join()


class AlertsTopic:
    """The loop's alerts on a topic of a real Kafka."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self._producer = Producer({"bootstrap.servers": servers})
        config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
        new = NewTopic(name, 1, 1, config=config)
        admin = AdminClient({"bootstrap.servers": servers})
        (made,) = admin.create_topics([new]).values()
        made.result(timeout=DEADLINE_SECONDS)

    def play(self, loop: Loop, *readings: Any, after: float = 0.0) -> None:
        before = len(loop.records)
        loop.step(*readings, after=after)
        for record in loop.records[before:]:
            if record.topic == ALERTS:
                self._producer.produce(self.name, record.value, record.key)
        assert self._producer.flush(DEADLINE_SECONDS) == 0


def loop_of(cluster: str) -> Loop:
    loop = Loop(cluster=cluster, min_hold="0s", alert_grace="0s")
    loop.now = datetime.now(UTC).replace(microsecond=0)
    return loop


def fill(topic: AlertsTopic, loop: Loop) -> None:
    """A disk that fills up, so that it fires for both limits."""
    topic.play(loop, members(1, cluster=loop.cluster), log_dirs(400, cluster=loop.cluster))
    topic.play(loop, log_dirs(50, cluster=loop.cluster), after=1)


def subjects(states: dict[tuple[str, str], str], cluster: str) -> Sequence[tuple[str, str]]:
    return sorted((alert, state) for (alert, subject), state in states.items() if subject.startswith(f"{cluster}/"))


def test_a_full_disk_pages_once_and_is_told_to_have_ended(loop_kafka: str, tmp_path: Path, free_port: int) -> None:
    receiver = Receiver()
    with receiver.server:
        alertmanager = Alertmanager(tmp_path, free_port, receiver)
        topic = AlertsTopic(loop_kafka, "alertmanager.decided.alerts")
        payments = loop_of("payments")
        hard, soft = "volume-below-hard-limit", "volume-below-soft-limit"
        with notifying(KafkaConnection(bootstrap_servers=loop_kafka), topic.name, alertmanager.url):
            fill(topic, payments)
            with alertmanager.running():  # nobody was there when it began
                eventually("the page", lambda: receiver.of("pager") or None)
                caused = {(hard, "active"), (soft, "suppressed")}
                eventually("the inhibition", lambda: caused <= set(subjects(alertmanager.states(), "payments")) or None)
                assert receiver.of("pager") == {("firing", hard, "payments/1/a")}

            with alertmanager.running():  # and has forgotten everything
                eventually("it is told again", lambda: (hard, "payments/1/a") in alertmanager.states() or None)
                topic.play(payments, log_dirs(900), after=60)
                ended = ("resolved", hard, "payments/1/a")
                eventually("the end is told", lambda: ended in receiver.of("pager") or None)
                eventually("all has ended", lambda: not subjects(alertmanager.states(), "payments") or None)


def test_the_configuration_of_the_references_is_good() -> None:
    checked = subprocess.run(
        ["amtool", "check-config", str(ROOT / REFERENCE / "alertmanager.yaml")], capture_output=True
    )
    assert checked.returncode == 0, checked.stderr
