"""Settings of the switching policy: ``policies.switching``, per broker cluster by name or glob."""

from pydantic import Field

from policies.settings import PolicySettings
from policies.switching.limits import Limits
from policies.switching.precheck import Rules, TargetPolicy
from policies.switching.references import Kind, Strategy
from policies.units import Duration, PositiveDuration, millis_of, parse_duration


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
    max_deletions: int = Field(
        default=16, ge=1, le=1000, description="At most so many deletions are asked for at once."
    )
    retries: int = Field(default=5, ge=1, le=100, description="So many failures in a row, then a ledger stays behind.")
    precheck_validity: PositiveDuration = Field(
        default=parse_duration("10m"), description="How long what a precheck read, and so its report, counts."
    )
    target_policy: TargetPolicy = Field(
        default=TargetPolicy.DEDICATED,
        description="`dedicated`: a target must hold no ledger that is not headgate's copy; `shared`: it may, as long "
        "as none has an id to import.",
    )
    strategies: dict[Kind, Strategy] = Field(
        default_factory=dict,
        description="By kind (`schema`, `cursor`): `same_id` (default), or `remap` for new ids where theirs are taken.",
    )

    @property
    def remapped(self) -> frozenset[Kind]:
        """Kinds whose ledgers get new ids."""
        return frozenset(kind for kind, strategy in self.strategies.items() if strategy is Strategy.REMAP)

    @property
    def limits(self) -> Limits:
        """As the machine takes them."""
        return Limits(
            rollback_window_ms=millis_of(self.rollback_window),
            cleanup_after_ms=millis_of(self.cleanup_after),
            copy_concurrency=self.copy_concurrency,
            max_deletions=self.max_deletions,
            retries=self.retries,
            remapped=self.remapped,
        )

    @property
    def rules(self) -> Rules:
        """As a precheck takes them."""
        return Rules(policy=self.target_policy, validity_ms=millis_of(self.precheck_validity), remapped=self.remapped)
