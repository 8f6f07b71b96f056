"""Decisions and records about switches as the policy itself makes them, for the tests of what the command line says."""

from datetime import UTC, datetime, timedelta
from typing import Any

from deploy.switch.loop_commands import event_id
from policies.decisions import Decision
from policies.observations import Observation, Outcome, Reading
from policies.switching.decisions import BrokerCounts, SwitchDecision, SwitchReason, SwitchRecord
from policies.switching.policy import SwitchingPolicy
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand, SwitchPrecheck
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState
from tests.connectors.switching.orders import record as order_record

NOW = datetime(2026, 11, 21, 17, tzinfo=UTC)
OK: dict[str, Any] = {"cluster": "c1", "outcome": Outcome.OK}


def command(name: CommandName, /, key: str = "k", dry_run: bool = False, **args: Any) -> SwitchCommand:
    return SwitchCommand(**OK, command=name, args=CommandArgs(**args), actor="a", idempotency_key=key, dry_run=dry_run)


def register(name: str, key: str = "k", instance: str | None = None, **more: Any) -> SwitchCommand:
    about: dict[str, Any] = {"name": name, "uri": f"zk+hierarchical://{name}:2181/ledgers", "root": "/ledgers"}
    return command(CommandName.REGISTER, key, **about, instance_id=instance or f"id-{name}", **more)


def report(target: str = "new", **more: Any) -> SwitchPrecheck:
    about = {"source": "old", "target": target, "ready": True, "digest": "d" * 64, "valid_ms": 600_000, **more}
    return SwitchPrecheck(**{**OK, **about})


class Loop:
    """The policy of one cluster: gives what it decides about each reading."""

    def __init__(self, **settings: Any) -> None:
        self._policy = SwitchingPolicy("c1", SwitchingSettings.model_validate(settings))
        self._state: SwitchingState | None = None
        self._now = NOW
        self.decisions: list[Decision] = []

    def step(self, reading: Reading, id: str | None = None) -> list[SwitchDecision]:  # noqa: A002
        self._now += timedelta(seconds=1)
        id = id or (event_id(reading) if isinstance(reading, SwitchCommand) else f"o{len(self.decisions)}")  # noqa: A001
        step = self._policy.step(self._state, [Observation(id, self._now, reading)], self._now)
        self._state = step.state
        self.decisions.extend(step.decisions)
        return [d for d in step.decisions if isinstance(d, SwitchDecision)]


def record(**fields: Any) -> SwitchRecord:
    """A switch from `old` to `new`; decided 12 s ago."""
    usual = {
        "sequence": 5, "decided_at": NOW - timedelta(seconds=12), "epoch": 3, "committed_epoch": 2,
        "brokers": BrokerCounts(live=3, acked=1), "prechecks": {"new": "d" * 64},
        "registry": {"old": "active", "new": "standby"}, "reason": SwitchReason.COMMANDED,
    }  # fmt: skip
    return order_record(**(usual | fields))
