"""The demo's servers: the watched broker on the small volume, and a broker for the loop's own topics."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from deploy.demo.volume import DemoVolume
from deploy.embedded.kafka import EmbeddedKafka

TOPIC = "orders"

_PARTITIONS = 3
_SEGMENT_BYTES = 1024 * 1024
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Servers:
    """The two running Kafka clusters."""

    watched: EmbeddedKafka
    loop: EmbeddedKafka

    def create_topic(self) -> None:
        """Create the producers' topic; its records are not deleted yet."""
        config = {"segment.bytes": str(_SEGMENT_BYTES), "retention.ms": "-1"}
        admin = self._admin()  # keep a reference: without one, its pending answers are lost
        admin.create_topics([NewTopic(TOPIC, _PARTITIONS, 1, config=config)])[TOPIC].result(timeout=_ANSWER_SECONDS)

    def free_space(self) -> None:
        """Do as an operator would: shorten the retention to a second."""
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(timeout=_ANSWER_SECONDS)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.watched.bootstrap_servers, "log_level": 0})


@contextmanager
def running_servers(folder: Path, volume: DemoVolume, jars: Sequence[Path]) -> Iterator[Servers]:
    """Start both at the same time; kill them at the end, because none of their data is kept.

    Raises:
        UserError: a broker does not start; the message says why.
    """
    servers = Servers(
        EmbeddedKafka(
            folder / "watched",
            jars,
            log_dirs={1: [volume.folder]},
            heap_mebibytes=160,
            server_properties={"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 100},
        ),
        EmbeddedKafka(folder / "loop", jars, heap_mebibytes=192),
    )
    both = (servers.watched, servers.loop)
    try:
        _run_together([kafka.start for kafka in both])
        yield servers
    finally:
        _run_together([partial(kafka.stop, grace_seconds=0) for kafka in both])


def _run_together(calls: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()
