"""A fleet in which events come late, twice or never: its brokers, its readings, and the harm that must never happen.

A broker may follow a directive long before it reports that, or never report it.
"""

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from policies.switching.alert_kinds import IDS_BEHIND
from policies.switching.decisions import ORDERS, RejectCode, SwitchVerdict
from policies.switching.fold import InventorySeen
from policies.switching.judge.table import find_holds
from policies.switching.ledgers import LedgerKind, TargetPolicy, find_owner
from policies.switching.readings import LedgerOutcome, SwitchBroker, SwitchLedger, SwitchRegistry
from policies.switching.settings import SwitchingSettings
from policies.switching.state import (
    ClusterStatus,
    Directive,
    LedgerTask,
    SwitchingState,
    SwitchStage,
    make_progress,
)
from policies.switching.transition import DecisionDraft, Transition
from tests.policies.switching.events import Event, Made, answer, command
from tests.policies.switching.world import Bookies, HarmError, Ref, World, apply, few

S = SwitchStage
_REMEDY = re.compile(r"(\S+) (?:gives \d+ next|began at \d+)[^;]*?: advance to HOB-(\d+)")
_NAMED = re.compile(r"`((?:abort|rollback|resume|pause|cleanup|end|start|register)\b[^`]*)`")
_NO_REFUSAL = (None, RejectCode.PRECHECK_FAILED, RejectCode.COLLISION)
_READS_ONLY = (SwitchVerdict.RUN_PRECHECK, SwitchVerdict.TAKE_INVENTORY)


@dataclass
class Broker:
    """The broker's real behaviour, whatever it reports."""

    writes_to: str
    epoch: int = 0
    clients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By cluster, the HOB that its open client remembers, and the epoch at which it was opened."""

    @property
    def client_epoch(self) -> int:
        """The epoch at which it opened the client that it writes with."""
        return self.clients.get(self.writes_to, (0, 0))[1]

    @property
    def hob(self) -> int | None:
        """The HOB that the client with which it writes remembers; None: it opens one only now."""
        return self.clients.get(self.writes_to, (None, 0))[0]

    def moved(self, cluster: str, epoch: int | None = None) -> "Broker":
        """Return it as it writes to another cluster, with the clients that it has."""
        return Broker(cluster, self.epoch if epoch is None else epoch, self.clients)


class Fleet(World):
    """A world of up to five clusters, whose brokers are on their own."""

    goes_on_reporting = False

    def __init__(
        self, limits: SwitchingSettings | None = None, policy: TargetPolicy = TargetPolicy.SHARED, clusters: int = 3
    ) -> None:
        super().__init__(limits, policy)
        for name, hob in (("third", 1), ("fourth", None), ("fifth", 2))[: clusters - 2]:
            self.clusters[name] = Bookies(name, f"id-of-{name}", hob=hob)
        self.refs["/s2"] = Ref(LedgerKind.SCHEMA, self.refs["/c1"].ledger_id, "/c1")  # one ledger, named by both kinds
        self.fleet = {name: Broker("old") for name in self.brokers}
        self.joined = len(self.fleet)
        self.foreign: Directive | None = None
        """A directive that a foreign process wrote."""
        self.contested_heard = False
        self.astray: list[tuple[str, str, int, bool]] = []
        """Ids that topics got from brokers that did not follow the directive; no reading foresees them."""
        self.known_writes = {"old"}
        """Clusters to which brokers reported to write."""
        self.directed_to = {"old"}
        self.remedies: list[tuple[str, int]] = []
        self.just_remedied = False
        self.listed: InventorySeen | None = None
        """The newest complete list of references that arrived."""
        self.under_way: list[Event] = []
        """Events that have not arrived yet."""
        self.kept: SwitchRegistry | None = None
        """After the loss of a checkpoint, the content of the registry until it is read."""
        self.has_forgotten = False
        """Whether a checkpoint was ever lost."""
        self.taken_over = 0
        """The epoch of the foreign directive in force when the checkpoint was lost, which is then taken for ours."""
        self.frozen = 0
        """The number of further steps for which the clock stands still."""
        self.registered()
        self.read()

    def later(self, milliseconds: int = 1000) -> "Fleet":
        """Let time pass, unless the clock stands still."""
        if self.frozen > 0:
            self.frozen -= 1
        else:
            super().later(milliseconds)
        return self

    def lose_checkpoint(self) -> None:
        """Start the query without state. Registry, brokers and executors continue, and their reports are under way."""
        switch = self.state.switch
        progress = make_progress(switch) if switch is not None else None
        self.kept = self.registry_event().but(progress=progress).reading
        if self.foreign is not None:
            self.directed_to.add(self.foreign.target)
            self.taken_over = self.foreign.epoch
        self.foreign, self.contested_heard, self.listed = None, False, None
        self.known_writes = {e.name for e in self.kept.clusters if e.status is not ClusterStatus.STANDBY}
        self.state = SwitchingState()
        self.has_forgotten = True
        self.orders.clear()
        self.remedies.clear()

    def _copy(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        """The executor's journal still has the ids that were deleted from a target, after the policy lost them."""
        if self.has_forgotten and not task.remap and task.ledger_id in self.clusters[target].deleted:
            return answer(LedgerOutcome.EXISTS)
        return super()._copy(task, source, target)

    def _revert(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        """The executor looks the ledger up in the source, where an earlier switch may have deleted it."""
        if self.has_forgotten and task.ledger_id in self.clusters[source].deleted:
            return answer(LedgerOutcome.FAILED)
        return super()._revert(task, source, target)

    # --- brokers

    def directive_shown(self) -> Directive | None:
        """Return the newest directive in the registry, ours or a foreign one."""
        ours = self.kept.directive if self.kept else self.state.directive
        return self.foreign if self.foreign and self.foreign.epoch >= (ours.epoch if ours else 0) else ours

    def where(self) -> str:
        """The cluster to which a broker writes that follows the directive."""
        directive, known = self.directive_shown(), self.kept or self.state
        if directive is not None and directive.epoch > known.committed_epoch:
            return directive.target
        return known.committed() or "old"

    def adopt(self, name: str, *, opens_client: bool = True) -> None:
        """Make a broker follow the directive in force; it reports that only when `report` is called.

        Args:
            name: of the broker.
            opens_client: as an agent must. Else it goes on with the client that it has, which remembers its HOB.
        """
        directive, where = self.directive_shown(), self.where()
        epoch, clients = directive.epoch if directive else 0, dict(self.fleet[name].clients)
        if opens_client or where not in clients:
            clients[where] = (self.clusters[where].hob or 0, epoch)
        self.fleet[name] = Broker(where, epoch, clients)

    def write_anywhere(self, topic: str, name: str) -> None:
        """Create a ledger of a topic. Only brokers that follow the directive must never get a lower id."""
        one = self.fleet[name]
        epoch = self.directive_shown().epoch if self.directive_shown() else 0  # type: ignore[union-attr]
        follows = (one.writes_to, one.epoch, one.client_epoch) == (self.where(), epoch, epoch)
        ledger_id = self.clusters[one.writes_to].allocate(topic, self.now_ms, one.hob)
        if not follows or self.foreign is not None or one.epoch == self.taken_over > 0:
            self.astray.append((topic, one.writes_to, ledger_id, one.writes_to in self.directed_to))
            return
        past = self.topics[topic]
        if past and ledger_id <= max(past):
            raise HarmError(f"ORDER: {topic} gets {ledger_id} of {one.writes_to} after {max(past)}")
        past.append(ledger_id)

    def _count_what_is_known(self) -> None:
        """Expect a directive to respect ids of disobedient brokers, as far as readings showed them."""
        for entry in list(self.astray):
            topic, cluster, ledger_id, directed = entry
            seen = self.state.cluster(cluster)
            known = seen is not None and seen.generator is not None and seen.generator.next_id > ledger_id
            if (directed or cluster in self.known_writes) and known:
                self.topics[topic].append(ledger_id)
                self.astray.remove(entry)

    def report(self, name: str, **more: Any) -> None:
        """Let a report of a broker arrive now."""
        self.tell(self.said_by(name, **more))

    def said_by(self, name: str, **more: Any) -> Made:
        """A report of a broker as of now, which may arrive later."""
        one = self.fleet[name]
        self.brokers[name] = one.writes_to
        said: dict[str, Any] = {"writes": (one.writes_to,), "client_epoch": one.client_epoch, **more}
        return self.broker_event(name, epoch=one.epoch, **said)

    def members_event(self, *brokers: str, **more: Any) -> Made:
        """Return a reading of the live brokers."""
        return super().members_event(*(brokers or self.fleet), **more)

    # --- readings

    def read(self) -> None:
        """Let readings of the registry, all clusters and the members arrive."""
        self.later()
        self.tell(self.registry_event(), *(self.cluster_event(n) for n in self.clusters), self.members_event())
        self.later()

    def list_references(self) -> None:
        """Let a complete list of references arrive, if there is a switch."""
        switch = self.state.switch
        if switch is not None:
            self.tell(self.later().inventory_event(switch.target))

    def naming(self, cluster: str) -> set[str]:
        """The references to a cluster, by the newest list that arrived."""
        listed = self.listed.references if self.listed else ()
        return {r.path for r in listed if r.ledger_id >= 0 and find_owner(r, "old") == cluster}

    def registry_event(self, state: SwitchingState | None = None, **changes: Any) -> Made:
        """Return a reading of the registry."""
        if self.kept is not None:
            return Made(self.kept, self.now_ms)
        return super().registry_event(state, **({"directive": self.directive_shown()} | changes))

    def two_active_event(self) -> Made:
        """Return a reading of the registry in which every cluster is active."""
        active = (replace(e, status=ClusterStatus.ACTIVE) for e in self.state.entries)
        return self.registry_event(clusters=tuple(active))

    # --- events

    def tell(self, *events: Any) -> list[DecisionDraft]:
        """Let events arrive, and raise HarmError when a decision breaks a rule; returns the decisions."""
        said: list[DecisionDraft] = []
        for event in events:
            seen = event.reading if isinstance(event, Made) else event
            if isinstance(seen, SwitchBroker):
                self.known_writes.update(seen.writes)
            if isinstance(event, InventorySeen) and (self.listed is None or event.at_ms >= self.listed.at_ms):
                self.listed = event
            stage, epoch = self.state.switch.stage if self.state.switch else S.NONE, self.state.epoch
            now = super().tell(event)
            said += now
            if self.state.epoch > epoch and self.state.directive is not None:
                self._count_what_is_known()
                self.directed_to.add(self.state.directive.target)
            if self.foreign and self.state.epoch > self.foreign.epoch:
                self.directed_to.add(self.foreign.target)
                self.foreign, self.contested_heard = None, False
            is_read = isinstance(seen, SwitchRegistry) and bool(seen.clusters) and self.state.registry_ms >= 0
            if self.kept is not None and is_read:
                kept, self.kept = self.kept.directive, None
                if kept is not None and kept != self.state.directive:  # then somebody else wrote it
                    self.foreign, self.contested_heard = kept, True
            self._judge(stage, now, event)
        return said

    def _judge(self, before: SwitchStage, said: list[DecisionDraft], event: Any) -> None:
        is_still = before is (self.state.switch.stage if self.state.switch else S.NONE)
        for one in said:
            self._heed(one)
            if is_still:  # else the switch moved on by itself after it refused the command
                self._must_name_a_way(one)
        orders = [o for o in said if o.verdict in ORDERS and o.verdict not in _READS_ONLY]
        if self.contested_heard and orders and type(event).__name__ != "Resume":
            raise HarmError(f"CONTESTED: {orders[0].verdict.value} although somebody else directs")
        forgets = (SwitchVerdict.DELETE_OLD, SwitchVerdict.REMOVE_REGISTRY, SwitchVerdict.CLOSE_CLIENT)
        silent = self._find_silent() if any(o.verdict in forgets for o in orders) and self.state.directive else ""
        if silent and not (orders[0].verdict is SwitchVerdict.REMOVE_REGISTRY and orders[0].reason.value == "not_seen"):
            raise HarmError(f"SILENT: {orders[0].verdict.value} although {silent}")
        if any(o.verdict is SwitchVerdict.DELETE_OLD for o in orders) and (why := self._astray()):
            raise HarmError(f"CLEAN-UP: {why}")
        for one in said:
            self._must_need_nobody(one)
        after = self.state.switch.stage if self.state.switch else S.NONE
        if after is not before and before is not S.NONE:  # after a lost checkpoint it is only what was kept
            self._must_be_true(after)

    def _heed(self, one: DecisionDraft) -> None:
        """Note a remedy. A remedy that was followed must not have halted the switch."""
        for found in _REMEDY.finditer(one.sentence):
            name, hob = found[1], int(found[2])
            if name in self.clusters:
                self.remedies.append((name, hob))
        if one.verdict is SwitchVerdict.HALT and self.just_remedied:
            raise HarmError(f"REMEDY HALTS: {one.sentence}")

    def _must_name_a_way(self, one: DecisionDraft) -> None:
        """Raise HarmError if a refusal names a command that is not accepted now."""
        named = _NAMED.findall(one.sentence) if one.verdict is SwitchVerdict.REJECT else []
        wrong = [name for name in named if not self._is_accepted(name)]
        if wrong and one.subject.startswith("commands/"):
            raise HarmError(f"REFUSAL: {one.sentence}, but {wrong} is not accepted at {self._stage_name()}")

    def must_end_each_wait(self) -> None:
        """Raise HarmError if a hold names a command that is not accepted now, or none; ids have another remedy."""
        for hold in find_holds(Transition(self.state, self.limits, self.now_ms).facts()):
            named = _NAMED.findall(hold.ends_with)
            must_name = hold.kind.is_about_switch or (hold.kind.alert != IDS_BEHIND and self.state.live_switch())
            is_right = all(map(self._is_accepted, named)) and (named or not must_name)
            if not self.state.contested and not is_right:
                raise HarmError(f"HOLD: {hold.key} is to end with {hold.ends_with} at {self._stage_name()}")

    def _stage_name(self) -> str:
        return self.state.switch.stage.value if self.state.switch else "none"

    def _is_accepted(self, words: str) -> bool:
        """Whether a command is accepted now, or lacks only a precheck, which `headgate switch start` makes first."""
        name, *options = words.split()
        ways: dict[str, list[dict[str, Any]]] = {
            "rollback": [{"attribution_only": options != ["--with-brokers"]}],
            "start": [{"target": each} for each in self.clusters if options in ([], ["--target", each])],
            "register": [
                {"name": e.name, "uri": e.uri, "instance_id": e.instance_id, "root": e.root, "status": "active"}
                for e in self.state.entries
            ]
            + [
                {"name": c.name, "uri": f"zk://{c.name}", "instance_id": c.instance, "root": "/ledgers"}
                for c in self.clusters.values()
            ],
        }
        for args in ways.get(name, [{}]):
            trial = command(name, self.key(), dry_run=True, **args)
            _, (preview,) = apply(self.state, (trial,), self.limits, self.now_ms)
            if preview.code in _NO_REFUSAL:
                return True
        return False

    def _must_need_nobody(self, one: DecisionDraft) -> None:
        """Raise HarmError if a cluster is given up that is active or referenced."""
        if one.verdict not in (SwitchVerdict.REMOVE_REGISTRY, SwitchVerdict.CLOSE_CLIENT):
            return
        name = str(one.details.get("name") or "")
        if name == self.state.active():
            raise HarmError(f"GIVEN UP: {name} is active")
        if self.naming(name):
            raise HarmError(f"GIVEN UP: {sorted(self.naming(name))} name {name}")

    def _must_be_true(self, stage: SwitchStage) -> None:
        if stage is S.DONE and (naming := self.naming(self.switch.source)):
            raise HarmError(f"DONE: {sorted(naming)} name {self.switch.source}")
        asked_back = stage is S.ROLLED_BACK and not self.switch.attribution_only
        if (stage is S.DONE or asked_back) and (why := self._astray()):
            raise HarmError(f"{stage.value.upper()}: {why}")

    def _find_silent(self) -> str:
        """A live broker that sent no report for `ack_timeout`; else an empty text."""
        reports, members = {b.name: b.at_ms for b in self.state.brokers}, self.state.members
        if members is None or members.is_unread or self.now_ms >= members.at_ms + self.limits.ack_timeout_ms:
            return "it is not known which brokers are alive"
        since_ms = self.now_ms - self.limits.ack_timeout_ms
        return next((f"{name} is silent" for name in members.brokers if reports.get(name, -1) <= since_ms), "")

    def _astray(self) -> str:
        """A live broker that does not follow the directive, by the reports that arrived; else an empty text."""
        directive, members = self.state.directive, self.state.members
        reports = {b.name: b for b in self.state.brokers}
        for name in members.brokers if members and directive else ():
            said = reports.get(name)
            if said is None or said.acked_epoch != directive.epoch:  # type: ignore[union-attr]
                return f"{name} does not follow"
            if said.client_epoch is not None and said.client_epoch < directive.epoch:  # type: ignore[union-attr]
                return f"{name} writes through an old client"
            if set(said.writes) - {directive.target}:  # type: ignore[union-attr]
                return f"{name} writes to {said.writes}"
        return ""


def fleet_of(draw: Random) -> Fleet:
    """A fleet with a random number of clusters and random settings."""
    ahead = draw.choice((0, 3))
    limits = few(orders_ahead=ahead, strategies={"schema": "remap"} if draw.random() < 0.2 else {})
    policy = TargetPolicy.DEDICATED if draw.random() < 0.15 else TargetPolicy.SHARED
    return Fleet(limits, policy, clusters=draw.choice((2, 3, 3, 4, 5)))
