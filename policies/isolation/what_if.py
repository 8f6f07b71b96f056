"""Hypothetical changes of the membership: a bookie joins or dies, or a group is dropped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from policies.errors import UserError
from policies.isolation.membership import BookieMembership

_GRAMMAR = "write add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP"


class ChangeKind(StrEnum):
    """What happens."""

    ADD = "add"
    """A bookie registers, in a group where one is named; a registered one moves to that group."""
    REMOVE = "remove"
    """A bookie dies; its group still names it."""
    REMOVE_GROUP = "remove-group"
    """A group is dropped; its bookies stay registered."""


@dataclass(frozen=True, slots=True)
class HypotheticalChange:
    """One thing that happens."""

    kind: ChangeKind
    name: str
    """Of the bookie or the group."""
    group: str | None = None


def parse_change(text: str) -> HypotheticalChange:
    """Read ``add=bk9:3181@shared``, ``remove=bk1:3181`` or ``remove-group=shared``.

    Raises:
        UserError: it is none of these.
    """
    word, _, name = text.partition("=")
    if word not in set(ChangeKind) or not name:
        raise UserError(f"--what-if: '{text}' is no change; {_GRAMMAR}")
    kind = ChangeKind(word)
    if kind is not ChangeKind.ADD:
        return HypotheticalChange(kind, name)
    bookie, at, group = name.rpartition("@")
    if not at:
        return HypotheticalChange(kind, name)
    if not (bookie and group):
        raise UserError(f"--what-if: '{text}' lacks the {'group' if bookie else 'bookie'}; {_GRAMMAR}")
    return HypotheticalChange(kind, bookie, group)


def after(membership: BookieMembership, changes: Iterable[HypotheticalChange]) -> BookieMembership:
    """The membership once all of this has happened, in order.

    Raises:
        UserError: a bookie or group that is to go is not there.
    """
    for change in changes:
        membership = _after(membership, change)
    return membership


def _after(membership: BookieMembership, change: HypotheticalChange) -> BookieMembership:
    groups: Mapping[str, frozenset[str]] = membership.groups or {}
    match change.kind:
        case ChangeKind.ADD:
            writable = membership.writable | {change.name}
            moved = groups if change.group is None else _moved(groups, change.name, change.group)
            return BookieMembership(writable, moved or membership.groups)
        case ChangeKind.REMOVE:
            if change.name not in membership.writable:
                raise UserError(f"--what-if remove={change.name}: there is no writable bookie of this id")
            return BookieMembership(membership.writable - {change.name}, membership.groups)
        case ChangeKind.REMOVE_GROUP:
            if change.name not in groups:
                raise UserError(f"--what-if remove-group={change.name}: there is no such group")
            return BookieMembership(membership.writable, {g: b for g, b in groups.items() if g != change.name})


def _moved(groups: Mapping[str, frozenset[str]], bookie: str, group: str) -> dict[str, frozenset[str]]:
    """As `set-bookie-rack` does it: the bookie is in this group and in no other."""
    rest = {name: bookies - {bookie} for name, bookies in groups.items()}
    return {**rest, group: rest.get(group, frozenset()) | {bookie}}
