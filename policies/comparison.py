"""The comparison behind a verdict: a value, a threshold, and the relation that the rule asks for.

A judge that decides by a comparison makes it part of its verdict. The counterfactuals of the decision ("once broker 3
has more than 1.1 GB free") are worded from the same object, so each rule and each threshold stands in the code once.
"""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct


class Relation(StrEnum):
    """The relation between a value and its threshold."""

    LESS = "<"
    AT_MOST = "<="
    AT_LEAST = ">="
    MORE = ">"


class Comparison(Struct, frozen=True, gc=False):
    """One comparison that a rule makes.

    Args:
        relation: the relation to the threshold that the rule asks for.
        threshold: the limit, in the unit of the value.
        tolerance: values whose difference from the threshold is at most this count as equal to it.
    """

    value: float
    relation: Relation
    threshold: float
    tolerance: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the value is on the side of the threshold that the rule asks for."""
        match self.relation:
            case Relation.LESS:
                return self.value < self.threshold - self.tolerance
            case Relation.AT_MOST:
                return self.value <= self.threshold + self.tolerance
            case Relation.AT_LEAST:
                return self.value >= self.threshold - self.tolerance
            case Relation.MORE:
                return self.value > self.threshold + self.tolerance

    def describe(self, render: Callable[[float], str], *, is_count: bool = False) -> str:
        """Word the required side of the threshold: ``1.0 GB or less``, ``more than 1.1 GB``, ``fewer than 5``.

        Args:
            render: writes the threshold with its unit.
            is_count: whether the value counts things, of which there are "fewer" and not "less".
        """
        limit, less = render(self.threshold), "fewer" if is_count else "less"
        match self.relation:
            case Relation.LESS:
                return f"{less} than {limit}"
            case Relation.AT_MOST:
                return f"{limit} or {less}"
            case Relation.AT_LEAST:
                return f"{limit} or more"
            case Relation.MORE:
                return f"more than {limit}"
