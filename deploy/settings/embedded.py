"""The settings of the loop that `headgate up` runs on a Kafka of its own."""

import json
import os
from pathlib import Path

from connectors.kafka.connection import KafkaConnection, WatchedKafka
from deploy.settings.application import EMBEDDED_CLUSTER, Settings, WatchedCluster

_LIMITS = {"hard": {"available_ratio_below": 0.05}, "soft": {"available_ratio_below": 0.15}}
"""The limits of the embedded cluster, where the settings name none."""


def with_embedded(settings: Settings, bootstrap_servers: str) -> Settings:
    """Return the settings with the embedded cluster as the loop's own Kafka and as a watched cluster."""
    given = settings.clusters.get(EMBEDDED_CLUSTER) or WatchedCluster()
    watched = {} if given.kafka is None else given.kafka.model_dump(exclude={"bootstrap_servers"})
    kafka = WatchedKafka(**{**watched, "bootstrap_servers": bootstrap_servers})
    embedded = given.model_copy(update={"kafka": kafka})
    throttle = settings.policies.throttle
    if not throttle.for_cluster(EMBEDDED_CLUSTER).limited:  # so that any nearly full disk has decisions
        throttle = throttle.with_defaults({EMBEDDED_CLUSTER: _LIMITS})
    return settings.model_copy(
        update={
            "kafka": KafkaConnection(bootstrap_servers=bootstrap_servers),
            "clusters": {**settings.clusters, EMBEDDED_CLUSTER: embedded},
            "policies": settings.policies.model_copy(update={"throttle": throttle}),
        }
    )


def with_running_up(settings: Settings) -> Settings:
    """Return the settings, completed from a `headgate up` that runs on their data folder if they name no Kafka."""
    servers = None if settings.kafka is not None else embedded_servers(settings.data_dir / "kafka")
    return settings if servers is None else with_embedded(settings, servers)


def embedded_servers(folder: Path) -> str | None:
    """Return the bootstrap servers of an embedded cluster; None if none runs on this folder."""
    try:
        holder = int((folder / "lock").read_text().split()[0])
        ports = [int(port) for port in json.loads((folder / "cluster.json").read_text())["broker_ports"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    # Taking the lock, even for a moment, could make the start of another `up` fail.
    try:
        os.kill(holder, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # the process runs as another user
    return ",".join(f"127.0.0.1:{port}" for port in ports) or None
