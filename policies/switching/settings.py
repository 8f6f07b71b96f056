"""Settings of the switching policy: ``policies.switching``, per broker cluster by name or glob."""

from pydantic import Field

from policies.settings import PolicySettings
from policies.switching.ledgers import IdStrategy, LedgerKind, TargetPolicy
from policies.units import Duration, PositiveDuration, Size, millis_of, parse_duration

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class SwitchingSettings(PolicySettings):
    """Moving the brokers of a cluster to another BookKeeper cluster. Nothing happens without a command."""

    rollback_window: Duration = Field(
        default=parse_duration("24h"), description="How long after going live a switch can be rolled back."
    )
    cleanup_after: Duration = Field(
        default=parse_duration("15d"),
        description="The least time after going live for which copied ledgers stay in the old cluster; never shorter "
        "than `rollback_window`.",
    )
    copy_concurrency: int = Field(
        default=16, ge=1, le=1000, description="The most ledgers copied (or promoted) at once."
    )
    orders_ahead: int = Field(
        default=1000,
        ge=0,
        le=10_000,
        description="The number of further ledgers that are ordered ahead, so that the executor never waits for the "
        "query. When the switch halts or is paused, the executor begins no further order.",
    )
    copy_bytes_per_second: Size | None = Field(
        default=None,
        gt=0,
        description="The most bytes of entries that are copied in a second, over all ledgers. A new value takes effect "
        "for running copies when the process starts anew. Default: no limit.",
    )
    max_deletions: int = Field(default=16, ge=1, le=1000, description="The most deletions that are ordered at once.")
    retries: int = Field(default=5, ge=1, le=100, description="Tries of an order, after which a ledger stays behind.")
    ack_timeout: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="How long a live broker may take to follow a directive before an alert is raised.",
    )
    precheck_validity: PositiveDuration = Field(
        default=parse_duration("10m"), description="How long a precheck counts, from its oldest reading on."
    )
    skip_idgen_precheck: bool = Field(
        default=False,
        description="In a lab only: brokers may move although the target's ids are behind, so ids may collide and data "
        "may be lost. Every later report shows it.",
    )
    target_policy: TargetPolicy = Field(
        default=TargetPolicy.DEDICATED,
        description="`dedicated`: a target must hold no ledger except Headgate's copies; `shared`: it may hold others, "
        "if none has an id to import.",
    )
    strategies: dict[LedgerKind, IdStrategy] = Field(
        default_factory=dict,
        description="The strategy by kind (`schema`, `cursor`): `same_id` (default), or `remap` for new ids if the old "
        "ones are taken.",
    )

    @property
    def remapped(self) -> frozenset[LedgerKind]:
        """Kinds whose ledgers get new ids."""
        return frozenset(kind for kind, strategy in self.strategies.items() if strategy is IdStrategy.REMAP)

    @property
    def window(self) -> int:
        """The most ledgers with an open order: those in work, and those ordered ahead."""
        return self.copy_concurrency + self.orders_ahead

    @property
    def ack_timeout_ms(self) -> int:
        """`ack_timeout` in milliseconds."""
        return millis_of(self.ack_timeout)
