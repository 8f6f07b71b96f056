"""What the switching policy decides: topic ``decided.switches``: orders and refusals, and the record of each switch."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import Decision
from policies.switching.orders import Code, Verdict, Why
from policies.switching.references import Kind
from policies.switching.state import LedgerStage, Stage
from policies.units import Instant


class LedgerRef(BaseModel):
    """The ledger a decision is about, and its place in the plan."""

    model_config = ConfigDict(frozen=True)

    ledger_id: int = Field(description="In the source.")
    target_id: int | None = Field(description="In the target, where it is another one.")
    kind: Kind
    paths: tuple[str, ...] = Field(description="Of the znodes that name it.")
    stage: LedgerStage
    remap: bool = Field(description="Whether it gets a new id in the target.")
    place: int = Field(ge=1, description="Its place in the plan, by ledger id.")
    of: int = Field(ge=1, description="How many ledgers the plan has.")


class SwitchDecision(Decision):
    """One step of a switch: an order that an executor carries out by conditional writes only, or why there is none.

    An executor drops an order whose lease token or `op` is lower than one it has seen for the same subject.
    """

    event_type: ClassVar[str] = "headgate.switch-decision.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "code", "op", "epoch", "lease_token")

    verdict: Verdict
    reason: Why
    code: Code | None = Field(default=None, description="Of a rejection.")
    stage: Stage = Field(description="Of the switch, once this is decided.")
    epoch: int = Field(ge=0, description="Of the directive in force.")
    lease_token: int = Field(ge=0, description="Under which it is ordered; 0: under none.")
    op: int = Field(ge=0, description="The number that an answer quotes; 0 where none is expected.")
    source: str | None = Field(description="The cluster that brokers leave.")
    target: str | None = Field(description="The cluster that brokers move to.")
    ledger: LedgerRef | None = Field(default=None, description="The ledger it is about.")
    expects: Mapping[str, str | int | None] = Field(
        default_factory=dict, description="What an executor must find, or else change nothing and say so."
    )
    args: Mapping[str, str | int | bool | None] = Field(default_factory=dict, description="What the order says more.")
    valid_until: Instant | None = Field(
        description="When the lease ends under which it is ordered: an executor does not begin after this, unless it "
        "renewed that very lease. Null: no limit."
    )


class Brokers(BaseModel):
    """How far the brokers have moved."""

    model_config = ConfigDict(frozen=True)

    live: int | None = Field(description="Null: not known.")
    acked: int = Field(description="Those that follow the directive in force.")


class SwitchRecord(Decision):
    """Where a broker cluster's switch stands: one compacted record, for status and dashboards."""

    event_type: ClassVar[str] = "headgate.switch-state.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "ledgers", "active", "epoch", "brokers", "halted", "blocked")

    verdict: Stage
    reason: Why
    active: str | None = Field(description="The one cluster brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null: no switch began.")
    target: str | None = Field(description="The cluster that they move to; null: no switch began.")
    epoch: int = Field(description="The greatest ever directed.")
    committed_epoch: int = Field(description="Of the directive whose target became the active cluster.")
    attempt: int = Field(description="How often the switch was driven on; 1 at first, 0 when there is none.")
    ledgers: dict[LedgerStage, int] = Field(description="How many ledgers stand where; stages without any left out.")
    brokers: Brokers
    degraded: bool = Field(description="Whether a broker could not reach the target after others had moved.")
    blocked: str = Field(description="Why it does not go live; empty when nothing is in the way.")
    halted: str = Field(description="Why nothing is ordered; empty when it goes on.")
    rollback_until: Instant | None = Field(description="Until when it can be taken back; null: it is not live yet.")
    cleanup_from: Instant | None = Field(description="From when the source may be cleaned up; null: not live yet.")
    prechecks: dict[str, str] = Field(description="Digest of the last precheck by target.")
    registry: dict[str, str] = Field(description="Status by registered BookKeeper cluster.")
