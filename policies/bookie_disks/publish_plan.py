"""The next operation on one publish limit: the plan of a level, with the documents that Pulsar has of limits. Pure."""

from dataclasses import dataclass

from msgspec import Struct

from policies.free_space.levels import (
    LevelPlan,
    LevelRecord,
    LevelSituation,
    Original,
    Rate,
    WantedFactor,
    plan_level,
)

_REMEMBERED_RATES = 4


class FoundLimit(Struct, frozen=True):
    """A limit as it was found."""

    rate: Rate
    document: str | None
    """The limit as Pulsar has it, with which it is put back exactly; None: there is none."""


class PublishRecord(Struct, frozen=True):
    """The record of one limit. It is kept in a property of a namespace, on the watched cluster itself."""

    original: FoundLimit
    rates: tuple[int, ...] = ()
    """The rates that Headgate may have set, the latest first."""


@dataclass(frozen=True, slots=True)
class PublishPlan(LevelPlan):
    """The operation on one limit."""

    original: FoundLimit | None = None
    """The limit to put back."""

    @property
    def to_write(self) -> PublishRecord | None:
        """The record to write before a rate is set; None: it is to be deleted after the original limit is put back."""
        if self.record is None or not self.record.held or self.original is None:
            return None
        return PublishRecord(self.original, self.record.rates[:_REMEMBERED_RATES])

    @property
    def highest_rate(self) -> Rate:
        """The highest rate that may be in force while the operation is carried out; None if there may be no limit."""
        return None if self.rate is None or self.found is None else max(self.rate, self.found)


def plan_publish(
    wanted: WantedFactor, record: PublishRecord | None, found: FoundLimit, base: Rate, floor: int
) -> PublishPlan:
    """Return the next operation on one limit; without a record it is not one of ours."""
    original, known, recorded = found, None, None
    if record is not None:
        known = LevelRecord(held=True, baseline=record.original.rate, rates=record.rates)
        recorded = Original(record.original.rate, next(iter(record.rates), 0))
        original = record.original if found.rate in record.rates else found
    planned = plan_level(
        LevelSituation(wanted, known, found.rate, base, floor, recorded, is_removal_meant=True, needs_base=True)
    )
    return PublishPlan(planned.verdict, planned.reason, planned.rate, planned.found, planned.record, original)
