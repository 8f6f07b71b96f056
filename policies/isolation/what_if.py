"""Hypothetical changes of the membership for `headgate placement --what-if`: a bookie joins or dies, a group goes."""

from collections.abc import Iterable
from typing import NamedTuple

from policies.errors import UserError
from policies.isolation.membership import BookieMembership

_KINDS = ("add", "remove", "remove-group")
_GRAMMAR = "write add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP"


class HypotheticalChange(NamedTuple):
    """A bookie registers (`add`), alone in the group if one is named, or dies (`remove`); or a group is dropped."""

    kind: str
    name: str
    """The bookie or the group."""
    group: str | None = None


def parse_change(text: str) -> HypotheticalChange:
    """Read ``add=bk9:3181@shared``, ``remove=bk1:3181`` or ``remove-group=shared``.

    Raises:
        UserError: the text is none of these.
    """
    kind, _, name = text.partition("=")
    if kind not in _KINDS or not name:
        raise UserError(f"--what-if: '{text}' is no change; {_GRAMMAR}")
    if kind != "add" or "@" not in name:
        return HypotheticalChange(kind, name)
    bookie, _, group = name.rpartition("@")
    if not (bookie and group):
        raise UserError(f"--what-if: '{text}' lacks the {'group' if bookie else 'bookie'}; {_GRAMMAR}")
    return HypotheticalChange(kind, bookie, group)


def apply_changes(membership: BookieMembership, changes: Iterable[HypotheticalChange]) -> BookieMembership:
    """Return the membership after these changes, applied in order.

    Raises:
        UserError: a bookie or group that is to be removed does not exist.
    """
    writable, groups = membership.writable, membership.groups
    for kind, name, group in changes:
        if kind == "add":
            writable |= {name}
            if group is not None:
                # The bookie moves to this group, as with `set-bookie-rack`.
                groups = {other: bookies - {name} for other, bookies in (groups or {}).items()}
                groups[group] = groups.get(group, frozenset()) | {name}
        elif kind == "remove":
            if name not in writable:
                raise UserError(f"--what-if remove={name}: there is no writable bookie of this id")
            writable -= {name}
        elif name not in (groups or {}):
            raise UserError(f"--what-if remove-group={name}: there is no such group")
        else:
            groups = {other: bookies for other, bookies in (groups or {}).items() if other != name}
    return BookieMembership(writable, groups)
