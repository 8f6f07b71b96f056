"""Finds the Kafka of the loop: the one in the settings, or that of a running `headgate up`."""

import json
import os
from pathlib import Path

from connectors.kafka.connection import KafkaConnection
from deploy.embedded.small_servers import LOOPBACK
from deploy.settings.application import Settings
from policies.errors import UserError


def loop_connection(settings: Settings) -> KafkaConnection:
    """Return the connection to the loop's own Kafka.

    Raises:
        UserError: the settings have none, and no `headgate up` runs on their data folder.
    """
    if settings.kafka is not None:
        return settings.kafka
    servers = embedded_servers(settings.data_dir / "kafka")
    if servers is None:
        raise UserError(
            f"kafka.bootstrap_servers is not set, and no `headgate up` runs on the data folder {settings.data_dir}: "
            "name the loop's own Kafka there (or in HEADGATE_KAFKA__BOOTSTRAP_SERVERS), or the folder of a running "
            "`headgate up` in data_dir (or in HEADGATE_DATA_DIR)."
        )
    return KafkaConnection(bootstrap_servers=servers)


def embedded_servers(folder: Path) -> str | None:
    """Return the bootstrap servers of an embedded cluster; None if none runs on this folder."""
    try:
        holder = int((folder / "lock").read_text())
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
    return ",".join(f"{LOOPBACK}:{port}" for port in ports) or None
