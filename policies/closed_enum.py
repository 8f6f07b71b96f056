"""Closed enumerations (verdicts, reasons, outcomes): each member is defined together with one line of documentation."""

from enum import StrEnum
from typing import Self


class ClosedEnum(StrEnum):
    """A closed set of words on the wire or in the settings; metric labels and reference pages are made of it.

    A member is written ``LOWER = "lower", "The factor goes down, at once."``

    Raises:
        TypeError: a member has no meaning.
    """

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make a member from its word and its meaning."""
        if not meaning:
            raise TypeError(f"{cls.__module__}.{cls.__name__}: say what `{value}` means, beside it")
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
