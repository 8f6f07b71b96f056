"""Hypothetical changes of the membership for `headgate placement --what-if`: a bookie joins or dies, a group goes."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from policies.errors import UserError
from policies.isolation.membership import BookieMembership

_GRAMMAR = "write add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP"


class ChangeKind(StrEnum):
    """The kinds of changes."""

    ADD = "add"
    """A bookie registers. If the change names a group, the bookie is then in that group only."""
    REMOVE = "remove"
    """A bookie dies; it stays in its groups."""
    REMOVE_GROUP = "remove-group"
    """A group is dropped; its bookies stay registered."""


@dataclass(frozen=True, slots=True)
class HypotheticalChange:
    """One change."""

    kind: ChangeKind
    name: str
    """The bookie or the group."""
    group: str | None = None


def parse_change(text: str) -> HypotheticalChange:
    """Read ``add=bk9:3181@shared``, ``remove=bk1:3181`` or ``remove-group=shared``.

    Raises:
        UserError: the text is none of these.
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


def apply_changes(membership: BookieMembership, changes: Iterable[HypotheticalChange]) -> BookieMembership:
    """Return the membership after these changes, applied in order.

    Raises:
        UserError: a bookie or group that is to be removed does not exist.
    """
    for change in changes:
        membership = _apply_change(membership, change)
    return membership


def _apply_change(membership: BookieMembership, change: HypotheticalChange) -> BookieMembership:
    writable, groups = membership.writable, membership.groups or {}
    match change.kind:
        case ChangeKind.ADD:
            if change.group is None:
                return BookieMembership(writable | {change.name}, membership.groups)
            # The bookie moves to this group, as with `set-bookie-rack`.
            moved = {group: bookies - {change.name} for group, bookies in groups.items()}
            moved[change.group] = moved.get(change.group, frozenset()) | {change.name}
            return BookieMembership(writable | {change.name}, moved)
        case ChangeKind.REMOVE:
            if change.name not in writable:
                raise UserError(f"--what-if remove={change.name}: there is no writable bookie of this id")
            return BookieMembership(writable - {change.name}, membership.groups)
        case ChangeKind.REMOVE_GROUP:
            if change.name not in groups:
                raise UserError(f"--what-if remove-group={change.name}: there is no such group")
            return BookieMembership(writable, {g: b for g, b in groups.items() if g != change.name})
