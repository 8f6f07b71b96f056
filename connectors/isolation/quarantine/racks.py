"""Edits Pulsar's znode `/bookies`: parses it strictly, and adds one bookie without touching anything else.

Only the outline is parsed: groups, bookies, and the names of their fields. The values (racks, host names, fields of
later versions) keep their exact bytes, so numbers and escapes survive that Python would round or rewrite, and the order
is kept. White space between them is not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from policies.isolation.readings import RackInfo

_Info = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(dict[str, dict[str, _Info | None]])


class MalformedRacksError(Exception):
    """The content is not what Pulsar writes there; the message says where, without quoting it."""


@dataclass(frozen=True, slots=True)
class Racks:
    """Who is in which group."""

    groups: Mapping[str, Mapping[str, _Info | None]]
    """What is known of each bookie, by group and bookie."""

    def with_member(self, bookie: str, group: str, rack: str) -> bytes:
        """The content with one bookie more; no entry is changed, moved or left out.

        Raises:
            ValueError: the bookie is in a group already: it is not ours to move.
        """
        if group_of(self.groups, bookie) is not None:
            raise ValueError(f"{bookie} is in a group already")
        info = RackInfo(rack=rack, hostname=host_of(bookie))
        # As Pulsar writes it: what is not known is left out.
        member = {bookie: info.model_dump(exclude_none=True)}
        return msgspec.json.encode({**self.groups, group: {**self.groups.get(group, {}), **member}})


def parse_racks(content: bytes) -> Racks:
    """Read the znode's content; an empty one means no groups.

    Raises:
        MalformedRacksError: it is not JSON, not of the known shape, or names something twice: to write it back would
            lose what we have not understood.
    """
    if not content.strip():
        return Racks({})
    try:
        groups = _DECODER.decode(content)
        # Decoders keep the last of two equal names; the numbers do not matter here, and some are too long for Python.
        json.loads(content, object_pairs_hook=_names_once, parse_int=str, parse_float=str)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedRacksError(str(error)) from None
    except RecursionError:
        raise MalformedRacksError("it is nested too deeply") from None
    return Racks(groups)


def group_of(groups: Mapping[str, Mapping[str, object]], bookie: str) -> str | None:
    """The (first) group a bookie is in."""
    return next((group for group, members in groups.items() if bookie in members), None)


def host_of(bookie: str) -> str | None:
    """The host of an id `host:port`; None for a custom one."""
    host, _, port = bookie.rpartition(":")
    return host if host and port.isdecimal() else None


def _names_once(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("something is named twice")
