"""The groups of a cluster's bookies: the interface to their stores, and edits of Pulsar's znode `/bookies`.

The parser is strict, and an edit adds one bookie without touching anything else. Only the outline is parsed: groups,
bookies, and the names of their fields. The values (racks, host names, fields of later versions) keep their exact bytes,
so numbers and escapes survive that Python would round or rewrite. The order is kept; white space between values is not.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from connectors.actuation.reports import ActionError
from policies.bookie_readings import BookieRegistration, RackInfo

_Info = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(dict[str, dict[str, _Info | None]])


class ConflictError(ActionError):
    """Another writer has changed the groups since they were read: read and judge them again."""


@dataclass(frozen=True, slots=True)
class RacksSnapshot:
    """The groups and one bookie's registration, as read together."""

    groups: Mapping[str, Mapping[str, object]]
    """Members by group."""
    registration: BookieRegistration | None
    """The bookie's registration, with what the store shows of it; None if it is not registered."""
    writable: frozenset[str]
    """All bookies that take new data."""
    changed_at: datetime
    """Time of the groups' last change, by ZooKeeper's clock where known."""
    write: Callable[[str, str], datetime]
    """Adds the bookie to a group with a rack if the groups are unchanged; returns the time of the effect.

    Raises ConflictError, UnknownOutcomeError or another ActionError.
    """


class RackStore(Protocol):
    """The stored groups of one cluster's bookies. Used from one thread."""

    def read_groups(self, bookie: str) -> RacksSnapshot:
        """Read the present groups, and a bookie's registration.

        Raises:
            ActionError: they cannot be read, or their content must not be written back.
        """

    def close(self) -> None:
        """Close the connection; the next `read_groups` opens a new one."""


class MalformedRacksError(Exception):
    """The znode's content is not as Pulsar writes it. The message gives the place without quoting the content."""


@dataclass(frozen=True, slots=True)
class Racks:
    """The parsed content of the znode."""

    groups: Mapping[str, Mapping[str, _Info | None]]
    """The fields of each bookie, by group and bookie."""

    def with_member(self, bookie: str, group: str, rack: str) -> bytes:
        """Return the content with one more bookie; no entry is changed, moved or left out.

        Raises:
            ValueError: the bookie is in a group already, and must not be moved.
        """
        if find_group(self.groups, bookie) is not None:
            raise ValueError(f"{bookie} is in a group already")
        info = RackInfo(rack=rack, hostname=parse_host(bookie))
        # Pulsar leaves absent fields out, too.
        member = {bookie: info.model_dump(exclude_none=True)}
        return msgspec.json.encode({**self.groups, group: {**self.groups.get(group, {}), **member}})


def parse_racks(content: bytes) -> Racks:
    """Parse the znode's content; empty content means no groups.

    Raises:
        MalformedRacksError: it is not JSON, has an unknown shape, or contains a name twice. Writing it back could lose
            data.
    """
    if not content.strip():
        return Racks({})
    try:
        groups = _DECODER.decode(content)
        # Decoders keep the last of two equal names. Numbers are not parsed here: some are too long for Python.
        json.loads(content, object_pairs_hook=_refuse_repeated_names, parse_int=str, parse_float=str)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedRacksError(str(error)) from None
    except RecursionError:
        raise MalformedRacksError("it is nested too deeply") from None
    return Racks(groups)


def find_group(groups: Mapping[str, Mapping[str, object]], bookie: str) -> str | None:
    """Return the (first) group of a bookie; None if it is in no group."""
    return next((group for group, members in groups.items() if bookie in members), None)


def parse_host(bookie: str) -> str | None:
    """Return the host of a bookie id `host:port`; None for a custom id."""
    host, _, port = bookie.rpartition(":")
    return host if host and port.isdecimal() else None


def _refuse_repeated_names(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("something is named twice")
