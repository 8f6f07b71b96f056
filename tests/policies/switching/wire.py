"""The model's world, with the policy in the machine's place and every event and decision over the wire."""

from datetime import datetime
from typing import Any

from policies.book import Published
from policies.decisions import Alert, Decision
from policies.observations import Observation, Reading
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord
from policies.switching.facts import load_plan
from policies.switching.policy import SwitchingPolicy
from policies.switching.registration import KIND
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState, plan_key
from policies.switching.transition import DecisionDraft
from policies.units import from_millis
from policies.wire import EventReader, audit_event, decision_event, observation_event
from tests.policies.switching.events import CLUSTER as CLUSTER
from tests.policies.switching.events import Event, readings_of
from tests.policies.switching.world import World, few
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted

SETTINGS = few(target_policy="shared")
READER: EventReader[Any] = EventReader(KIND.readings)
DECIDED: EventReader[Any] = EventReader([*KIND.decisions, Alert])


class WireWorld(World):
    """As `World`, over the wire."""

    def __init__(self, settings: SwitchingSettings = SETTINGS) -> None:
        super().__init__(settings)
        self.host = SwitchingPolicy(CLUSTER, settings)
        self.kept = NEVER_STEPPED
        self.published: list[Decision] = []
        self.inputs: list[tuple[datetime, tuple[Observation, ...]]] = []
        self.wake_at: datetime | None = None
        self.seen = 0

    def observation(self, reading: Reading) -> Observation:
        """A reading after encoding and decoding."""
        self.seen += 1
        now = from_millis(self.now_ms)
        record = observation_event(reading, id=f"o{self.seen:06d}", source="test", time=now)
        event = READER.read(record)
        assert event.data == reading
        return Observation(event.id, now, event.data)

    def tell(self, *events: Event) -> list[DecisionDraft]:
        before = len(self.said)
        for event in events:
            self.history.append((self.now_ms, event))
            self.step(*(self.observation(r) for r in readings_of(event, self.now_ms)))
        return self.said[before:]

    def step(self, *observations: Observation) -> Published[SwitchingState]:
        now = from_millis(self.now_ms)
        self.inputs.append((now, observations))
        self.kept, step = step_hosted(self.host, self.kept, observations, now)
        assert step.wake_at is None or step.wake_at > now
        self.state = step.state
        self.wake_at = step.wake_at
        self.published.extend(step.decisions)
        for decision in step.decisions:
            told = decision.model_copy(update={"numbers": {}})
            assert DECIDED.read(decision_event(decision)).data == told
            assert audit_event(decision)
            if isinstance(decision, SwitchDecision):
                self._hear(decision)
        return step

    def _hear(self, decision: SwitchDecision) -> None:
        plan = load_plan(self.state.switch)
        task = plan.get(plan_key(decision.ledger.ledger_id, decision.ledger.kind)) if decision.ledger else None
        said = DecisionDraft(
            decision.verdict, decision.reason, decision.explanation, decision.subject, decision.code, task,
            decision.op, dict(decision.args),
        )  # fmt: skip
        self.said.append(said)
        if decision.verdict in ORDERS:
            self.orders.append(said)

    def records(self) -> list[SwitchRecord]:
        return [d for d in self.published if isinstance(d, SwitchRecord)]

    def alerts(self) -> list[tuple[str, str]]:
        return [(a.alert, a.status.value) for a in self.published if isinstance(a, Alert)]
