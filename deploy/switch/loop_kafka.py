"""Finds the loop that a command talks to: the Kafka that the settings name, or that of a running `headgate up`."""

import json
import os
from pathlib import Path

from connectors.kafka.connection import KafkaConnection
from deploy.embedded.kafka import LOOPBACK
from deploy.settings.application import Settings
from policies.errors import UserError


def loop_connection(settings: Settings) -> KafkaConnection:
    """The loop's own Kafka.

    Raises:
        UserError: the settings name none, and no `headgate up` runs on their data folder.
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
    """`host:port` of the brokers of an embedded cluster; None when none runs on this folder."""
    try:
        holder = int((folder / "lock").read_text())
        ports = [int(port) for port in json.loads((folder / "cluster.json").read_text())["broker_ports"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    # The lock itself is not asked for: to hold it for a moment would keep an `up` that starts just now from starting.
    return ",".join(f"{LOOPBACK}:{port}" for port in ports) if ports and _lives(holder) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
