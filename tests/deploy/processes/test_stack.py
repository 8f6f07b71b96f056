"""`headgate up`: the end of its Kafka is its own."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.processes import stack
from policies.units import UserError


def test_a_dead_kafka_ends_the_process_at_once_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dead:
        def watch(self, _stop: threading.Event, _tell: Any) -> None:
            raise UserError("Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)")

        def stop(self, *, grace_seconds: float) -> None:
            ended.append(grace_seconds)

    ended: list[float] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    stack._end_without(Dead(), SimpleNamespace(step=None), threading.Event())  # type: ignore[arg-type]
    assert (ended, capsys.readouterr().err) == ([0, 2], "Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)\n")
