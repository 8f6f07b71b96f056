"""One broker of an older Kafka on loopback, and the record of what was seen of older versions."""

import json
import re
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connectors.kafka.librdkafka import LOGGER
from deploy.java.jvm import JvmCommand
from tests.system.server import LOOPBACK, JvmServer, run_tool, small_jvm, write_properties
from tests.system.zookeeper import free_port

HEAP_MEBIBYTES = 160

RESULTS = Path(__file__).parents[1] / "data/compatibility.json"
"""By product, version and what was tried: ``works``, or what it cannot do."""

MANIFEST = Path(__file__).parents[2] / "deploy" / "java" / "jars.sha256"


def of_today(artifact: str) -> str:
    """The version of a jar that comes with Headgate: of its own broker, and of the ZooKeeper that tests start."""
    found = re.search(rf"/{re.escape(artifact)}-(\d[\w.]*)\.jar$", MANIFEST.read_text(), re.MULTILINE)
    assert found is not None, artifact
    return found[1]


class OlderKafka(JvmServer):
    """A broker that is its own controller, of any Kafka from 3.3 on; its ports stay the same over restarts.

    Args:
        folder: of its own.
        jars: `ensure_older_jars("kafka-…", …)`.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        super().__init__(folder)
        self.port, self._controller_port = free_port(), free_port()
        self._jars = tuple(jars)

    @property
    def bootstrap_servers(self) -> str:
        """Its `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> JvmCommand:
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self._controller_port}"
        config = write_properties(
            self.folder / "server.properties",
            {
                "process.roles": "broker,controller",
                "node.id": 1,
                # Not by bootstrap servers, which only 3.9 and later know.
                "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
                "listeners": listeners,
                "advertised.listeners": listeners.partition(",")[0],
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": self.folder / "logs",
                "offsets.topic.num.partitions": 1,
                "offsets.topic.replication.factor": 1,
                "log.cleaner.dedupe.buffer.size": 2_097_152,
                "log.index.size.max.bytes": 102_400,
            },
        )
        flags = small_jvm(self.folder, HEAP_MEBIBYTES)
        if not (self.folder / "logs/meta.properties").exists():
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            arguments = ("format", "--ignore-formatted", f"--cluster-id={cluster_id}", "--config", str(config))
            format_it = JvmCommand("kafka.tools.StorageTool", self._jars, flags, arguments)
            run_tool(format_it, self.folder / "format")
        return JvmCommand("kafka.Kafka", self._jars, flags, (str(config),))

    def _serves(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=LOGGER)
        try:
            return set(client.list_topics(timeout=2.0).brokers) == {1}
        except KafkaException:
            return False


def record(product: str, version: str, tried: str, seen: str = "works") -> None:
    """Note what was seen, for `docs/compatibility.md`; each run replaces what it tried."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known.setdefault(product, {}).setdefault(version, {})[tried] = seen
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
