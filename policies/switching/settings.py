"""Settings of the switching policy: ``policies.switching``, per broker cluster by name or glob."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from policies.settings import PolicySettings
from policies.switching.precheck.snapshot import PrecheckRules, TargetPolicy
from policies.switching.references import IdStrategy, LedgerKind
from policies.units import Duration, PositiveDuration, Size, millis_of, parse_duration

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class SwitchLimits:
    """Those of one broker cluster."""

    rollback_window_ms: int = DAY_MS
    cleanup_after_ms: int = 15 * DAY_MS
    copy_concurrency: int = 16
    max_deletions: int = 16
    retries: int = 5
    orders_ahead: int = 0
    copy_bytes_per_second: int | None = None
    skip_idgen_precheck: bool = False
    ack_timeout_ms: int = 60_000
    automatic_rollback: bool = False
    remapped: frozenset[LedgerKind] = frozenset()

    @property
    def window(self) -> int:
        """So many ledgers are ordered at once: those being worked on, and those that lie ready."""
        return self.copy_concurrency + self.orders_ahead


class SwitchingSettings(PolicySettings):
    """Moving the brokers of a cluster to another BookKeeper cluster. Nothing happens without a command."""

    rollback_window: Duration = Field(
        default=parse_duration("24h"), description="How long after going live a switch can be rolled back."
    )
    cleanup_after: Duration = Field(
        default=parse_duration("15d"),
        description="How long after going live the copied ledgers stay in the old cluster at least; never shorter than "
        "`rollback_window`.",
    )
    copy_concurrency: int = Field(
        default=16, ge=1, le=1000, description="At most so many ledgers are being copied (or promoted) at once."
    )
    orders_ahead: int = Field(
        default=1000,
        ge=0,
        le=10_000,
        description="So many more are ordered already, so that the executor never waits for the query. What it has not "
        "begun when the switch halts or is paused is not begun.",
    )
    copy_bytes_per_second: Size | None = Field(
        default=None,
        gt=0,
        description="At most so many bytes of entries are copied in a second, over all ledgers; it holds for what is "
        "being copied as soon as the settings are read again. Default: no limit.",
    )
    max_deletions: int = Field(
        default=16, ge=1, le=1000, description="At most so many deletions are asked for at once."
    )
    retries: int = Field(default=5, ge=1, le=100, description="So many failures in a row, then a ledger stays behind.")
    ack_timeout: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="How long a live broker may take to follow a directive before that is an alert.",
    )
    automatic_rollback: bool = Field(
        default=False,
        description="Undo a switch without being asked, while ids allow brokers to return: before it is live, when a "
        "broker cannot make its client of the target or does not follow within `ack_timeout`; after that, within "
        "`rollback_window`, when one cannot make its client for `ack_timeout`.",
    )
    precheck_validity: PositiveDuration = Field(
        default=parse_duration("10m"), description="How long what a precheck read, and so its report, counts."
    )
    skip_idgen_precheck: bool = Field(
        default=False,
        description="In a lab only: brokers may move although the target's ids are behind, so that ids may collide and "
        "data be lost. Every report says from then on that this was so.",
    )
    target_policy: TargetPolicy = Field(
        default=TargetPolicy.DEDICATED,
        description="`dedicated`: a target must hold no ledger that is not headgate's copy; `shared`: it may, as long "
        "as none has an id to import.",
    )
    strategies: dict[LedgerKind, IdStrategy] = Field(
        default_factory=dict,
        description="By kind (`schema`, `cursor`): `same_id` (default), or `remap` for new ids where theirs are taken.",
    )

    @model_validator(mode="after")
    def _is_paused_otherwise(self) -> Self:
        if self.maintenance:
            raise ValueError("maintenance: a switch is paused by `headgate switch pause`; leave it out")
        return self

    @property
    def remapped(self) -> frozenset[LedgerKind]:
        """Kinds whose ledgers get new ids."""
        return frozenset(kind for kind, strategy in self.strategies.items() if strategy is IdStrategy.REMAP)

    @property
    def limits(self) -> SwitchLimits:
        """As the machine takes them."""
        return SwitchLimits(
            rollback_window_ms=millis_of(self.rollback_window),
            cleanup_after_ms=millis_of(self.cleanup_after),
            copy_concurrency=self.copy_concurrency,
            max_deletions=self.max_deletions,
            retries=self.retries,
            orders_ahead=self.orders_ahead,
            copy_bytes_per_second=self.copy_bytes_per_second,
            skip_idgen_precheck=self.skip_idgen_precheck,
            ack_timeout_ms=millis_of(self.ack_timeout),
            automatic_rollback=self.automatic_rollback,
            remapped=self.remapped,
        )

    @property
    def rules(self) -> PrecheckRules:
        """As a precheck takes them."""
        return PrecheckRules(
            policy=self.target_policy,
            validity_ms=millis_of(self.precheck_validity),
            remapped=self.remapped,
            skip_idgen=self.skip_idgen_precheck,
        )
