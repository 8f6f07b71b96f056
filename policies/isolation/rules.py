"""The rule sets by which brokers choose bookies."""

from policies.closed_enum import ClosedEnum


class RuleSet(ClosedEnum):
    """Which bookies a namespace may use: the rule sets there are."""

    LEGACY = "legacy", "Pulsar up to 2.10: bookies without a group are always eligible."
    CURRENT = "current", "Pulsar from 2.11 on: bookies without a group when the namespace's groups do not suffice."
    STRICT = "strict", "The proposal: never bookies without a group."
