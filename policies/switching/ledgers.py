"""Ledgers and the BookKeeper clusters that hold them, with their names, ids and id generators.

Rules of ids and paths: docs/design/switching.md, What the precheck reads.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import asdict, fields, replace
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, core_schema

from policies.observations import Observed
from policies.units import MAX_INT64, ClosedEnum, InstantMs

Name = Annotated[str, Field(min_length=1, max_length=249)]
Text = Annotated[str, Field(max_length=4096)]
Metadata = Annotated[str, Field(max_length=1_500_000)]
"""A value of a ledger's metadata: a znode holds 1 MiB, and base64 makes it a third larger."""
MOST_LISTED = 100_000
"""The most items of a list in one record; in most cases the record's size limit comes first."""
Texts = Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]
Epoch = Annotated[int, Field(ge=0, le=MAX_INT64)]
LedgerId = Annotated[int, Field(ge=-1, le=MAX_INT64)]
Count = Annotated[int, Field(ge=0, le=MAX_INT64)]
Quorum = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Part(Observed):
    """A part of a reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@cache
def _make_model(kind: type[Struct]) -> type[Part]:
    """Return the model of a struct: the same fields, with the limits that are annotated."""
    known: dict[str, Any] = {}
    for each in fields(kind):
        default = Field(default_factory=each.default_factory) if each.default is NODEFAULT else each.default
        known[each.name] = each.type if each.required else (each.type, default)
    return create_model(kind.__name__, __base__=Part, __doc__=kind.__doc__, **known)


class Shared(Struct, array_like=True, frozen=True):
    """A struct that is a part of the state and of readings; there it is an object, and its fields have limits."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read and write it as its model."""
        model = _make_model(cls)
        read = core_schema.no_info_after_validator_function(
            lambda each: cls(**each.__dict__), handler.generate_schema(model)
        )
        known = core_schema.no_info_before_validator_function(lambda v: asdict(v) if isinstance(v, cls) else v, read)
        shown = core_schema.plain_serializer_function_ser_schema(lambda value: model.model_construct(**asdict(value)))
        return core_schema.json_or_python_schema(read, known, serialization=shown)


NO_LEDGER = -1
"""The ledger id of a cursor that has no ledger."""


class LedgerState(ClosedEnum):
    """A ledger's state in its metadata."""

    OPEN = "open", "A client writes to it."
    IN_RECOVERY = "in_recovery", "A client is closing it for a writer that is gone."
    CLOSED = "closed", "Its last entry is known and final."


class Ledger(Shared, frozen=True, kw_only=True):
    """A ledger by its metadata and its entries."""

    ledger_id: Annotated[LedgerId, Field(description="Its id in the cluster where it was read.")]
    state: LedgerState
    last_entry_id: Annotated[int, Field(ge=-1, le=MAX_INT64, description="Its last entry; -1: it is empty or open.")]
    length_bytes: Annotated[Count, Field(description="The length of all its entries.")]
    custom_metadata: Annotated[
        dict[Text, Metadata], Field(max_length=1000, description="Custom metadata; values in base64.")
    ] = field(default_factory=dict)
    ensemble_size: Annotated[Quorum | None, Field(description="The number of bookies that hold it.")] = None
    write_quorum: Annotated[Quorum | None, Field(description="The number of bookies that hold each entry.")] = None
    ack_quorum: Annotated[Quorum | None, Field(description="The number of acks that each entry needs.")] = None
    entries_digest: Annotated[Text | None, Field(description="Digest of all entries, in order; null: not read.")] = None
    created_ms: Annotated[Count | None, Field(description="Creation time, by ZooKeeper's clock.")] = None
    provenance: Annotated[
        str | None,
        Field(
            max_length=249,
            description="Instance id of the cluster from which an executor copied it, by the executor's journal; "
            "empty: it is no copy; null: not looked up.",
        ),
    ] = None


class HitClass(ClosedEnum):
    """The class of a ledger that exists in the target under an id to import."""

    OURS_COMPLETE = "ours_complete", "Headgate's own copy, equal to the source's ledger."
    OURS_PARTIAL = "ours_partial", "Headgate's own copy, not complete."
    FOREIGN = "foreign", "Not made by Headgate: never touched."


def same_ledger(source: Ledger, target: Ledger) -> bool:
    """Whether the target's ledger has the same content as the source's; an unread digest proves nothing."""
    return (
        source.ledger_id == target.ledger_id
        and source.state is LedgerState.CLOSED  # an open one may still grow
        and target.state is LedgerState.CLOSED
        and source.last_entry_id == target.last_entry_id
        and source.length_bytes == target.length_bytes
        and source.custom_metadata == target.custom_metadata
        and source.entries_digest is not None
        and source.entries_digest == target.entries_digest
    )


def is_ours(target: Ledger, source_instance: str) -> bool:
    """Whether Headgate copied a ledger from this source; it did not if the executor has not compared it."""
    return bool(source_instance) and target.provenance == source_instance


def has_id(ids: Sequence[int], ledger_id: int) -> bool:
    """Whether sorted ids contain one."""
    at = bisect_left(ids, ledger_id)
    return at < len(ids) and ids[at] == ledger_id


# Paths of ledgers' metadata in ZooKeeper, and the ledger of a path.

_FIRST_LONG_ID = 2**31 - 1
"""The layout's own boundary: the greatest 31-bit id is already written the long way."""
_SHORT_PATH = re.compile(r"/(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_LONG_PATH = re.compile(r"/(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)


class Layout(ClosedEnum):
    """The layout of a cluster's ledger metadata."""

    HIERARCHICAL = "hierarchical", "Ids below 2147483647 split 2/4/4, greater ones 3/4/4/4/4."
    LONG_HIERARCHICAL = "longhierarchical", "Every id split 3/4/4/4/4."


_FACTORIES = {
    "hierarchical": Layout.HIERARCHICAL,
    "longhierarchical": Layout.LONG_HIERARCHICAL,
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory": Layout.HIERARCHICAL,
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory": Layout.LONG_HIERARCHICAL,
}


def parse_layout(text: str) -> Layout | None:
    """Return the layout that a ``LAYOUT`` znode names (a version, then ``factory:version``).

    None if the layout is not known to hold every id, such as the flat and the legacy layout.
    """
    lines = text.strip().splitlines()
    return _FACTORIES.get(lines[1].rpartition(":")[0]) if len(lines) == 2 else None


def path_of(layout: Layout, ledger_id: int) -> str:
    """Return the path of a ledger's metadata below the cluster's root, such as ``/00/1695/L6902``.

    Raises:
        ValueError: the id is negative (-1 means "no ledger") or larger than 63 bits.
    """
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
    if layout is Layout.HIERARCHICAL and ledger_id < _FIRST_LONG_ID:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


_FLAT_PATH = re.compile(r"/L(\d{10})", re.ASCII)


def id_of_any_layout(path: str) -> int | None:
    """Return the ledger of a path of any layout of BookKeeper, the flat one included; None if it is none's path."""
    for pattern in (_SHORT_PATH, _LONG_PATH, _FLAT_PATH):
        if (matched := pattern.fullmatch(path)) is not None:
            ledger_id = int("".join(matched.groups()))
            return ledger_id if ledger_id <= MAX_INT64 else None
    return None


def id_at(layout: Layout, path: str) -> int | None:
    """Return the ledger of a path below the cluster's root; None if it is no ledger's path."""
    ledger_id = id_of_any_layout(path)
    # BookKeeper itself must write this path for the id: else it is not the ledger's.
    return ledger_id if ledger_id is not None and path_of(layout, ledger_id) == path else None


# The ledger id that a cluster gives next, derived from its id generator in ZooKeeper without using up an id.

MAX_HOB = 2**31 - 1
_HALF_BITS = 32
_NEARLY_FULL = 2**31 - 2**20
"""From this sequence number on, a cluster may begin its next ``HOB`` during a switch."""


def next_sequence(cversion: int, num_children: int) -> int:
    """Return the number of the next sequential child of a znode: the count of children ever created.

    ZooKeeper shows ``cversion`` = 2 * created - children, in 32 bits with a sign, so it may be negative or wrapped.
    """
    return (cversion + num_children) % 2**32 // 2


class IdGenerator(Shared, frozen=True):
    """The counters of the znode whose sequential children are the ids."""

    hob: Annotated[
        int | None, Field(default=None, ge=0, le=MAX_HOB, description="The k of the largest `HOB-k`; null: none.")
    ]
    cversion: Annotated[int, Field(ge=-(2**31), le=2**31 - 1, description="The number of changes of its children.")]
    num_children: Annotated[int, Field(ge=0, le=2**31 - 1, description="The number of its children.")]

    @property
    def next_id(self) -> int:
        """The id that the cluster gives next."""
        return (self.hob or 0) << _HALF_BITS | next_sequence(self.cversion, self.num_children)

    @property
    def given(self) -> int:
        """The greatest id known to be given; -1: none is. Ids before the present ``HOB`` may have been skipped."""
        return self.next_id - 1 if next_sequence(self.cversion, self.num_children) else -1

    @property
    def ceiling(self) -> int:
        """The greatest id that the cluster may give during a switch: the end of its ``HOB``, or of the next one."""
        full = next_sequence(self.cversion, self.num_children) >= _NEARLY_FULL
        return min((self.hob or 0) + full, MAX_HOB) << _HALF_BITS | (2**31 - 1)


EMPTY_SHORT = IdGenerator(hob=None, cversion=0, num_children=0)
"""The generator of a cluster without ``idgen`` and ``idgen-long``: no ledger was ever created."""
EMPTY_LONG = IdGenerator(hob=1, cversion=0, num_children=0)
"""The generator of an ``idgen-long`` without children: BookKeeper begins with ``HOB-0000000001``."""


def hob_beyond(ledger_id: int) -> int:
    """Return the least ``HOB`` of which every id is greater than an id."""
    return (ledger_id >> _HALF_BITS) + 1


def remedy_beyond(ledger_id: int, cluster: str) -> str:
    """Name the remedy that brings a cluster's ids beyond an id, if there is one."""
    hob = hob_beyond(ledger_id)
    return f"advance to {hob_name(hob)}" if hob <= MAX_HOB else f"no HOB lies beyond, so {cluster} cannot be used"


def hob_name(hob: int) -> str:
    """Return the znode's name, such as ``HOB-0000000001``."""
    return f"HOB-{hob:010d}"


def id_floor(source: IdGenerator, referenced: Iterable[int]) -> int:
    """Return the id beyond which the target must lie: all that the source may give, and all referenced ids."""
    return max(source.ceiling, max(referenced, default=NO_LEDGER))


# References to ledgers: schema locators and cursors move to the target; all others stay, and are counted.


class LedgerKind(ClosedEnum):
    """The kinds of ledgers that are copied. Topic ledgers stay in their cluster and age out."""

    SCHEMA = "schema", "A schema locator, one ledger for each version."
    CURSOR = "cursor", "A subscription's position."


class IdStrategy(StrEnum):
    """How ledgers of a kind get to the target."""

    SAME_ID = "same_id"
    """A copy keeps the ledger's id."""
    REMAP = "remap"
    """A copy gets a new id: a schema is copied and mapped; a cursor's owner is asked to roll over."""


class StayingKind(ClosedEnum):
    """The kinds of ledgers that stay in their cluster: they are counted, and neither copied nor attributed."""

    TOPIC = "topic", "Messages of a topic."
    OFFLOADED = "offloaded", "Messages of a topic that are in tiered storage, and not yet deleted from BookKeeper."
    TRANSACTION_LOG = "transaction_log", "The log of a transaction coordinator."
    PENDING_ACK = "pending_ack", "Acknowledgements of transactions that are not over."
    COMPACTED = "compacted", "The messages that a topic's compaction kept."
    DELAYED_INDEX = "delayed_index", "The index of a subscription's delayed messages."
    LOG = "log", "A segment of a DistributedLog: packages and functions."


ANY_CLUSTER = ""
"""The name that stands for an unknown cluster: any may hold the ledger."""


class StayingLedgers(Shared, frozen=True):
    """Ledgers of one kind that stay in one cluster; of topics there are far too many to list each."""

    kind: StayingKind
    cluster: Annotated[str, Field(max_length=249, description="Their cluster; empty: only their owner knows it.")] = ""
    count: Annotated[Count, Field(description="The number of ledgers.")] = 0
    greatest_id: Annotated[LedgerId, Field(description="The greatest of their ids; -1: none is known.")] = NO_LEDGER
    samples: Annotated[Texts, Field(description="Some of the znodes that name them.")] = ()


class Reference(Shared, frozen=True):
    """One place that names a ledger."""

    kind: LedgerKind
    path: Annotated[Text, Field(min_length=1, description="The path of its znode in the brokers' ZooKeeper.")]
    ledger_id: Annotated[LedgerId, Field(description="The ledger's id; -1: it names none.")]
    attribution: Annotated[Name | None, Field(description="Its property `_pulsar.bookieClusterName`.")] = None
    position: Annotated[Text, Field(description="The place in the znode: `info`, `index/3`; empty for a cursor.")] = ""


def find_owner(reference: Reference, bootstrap: str | None) -> str | None:
    """Return the cluster that holds the ledger: the attributed one, else the bootstrap cluster; None if not known."""
    return reference.attribution or bootstrap


def with_ledger(references: Iterable[Reference]) -> Iterable[Reference]:
    """Return the references that name a ledger."""
    return (r for r in references if r.ledger_id != NO_LEDGER)


# What a precheck may find.


class TargetPolicy(StrEnum):
    """Whether other ledgers may exist in the target."""

    DEDICATED = "dedicated"
    """No other ledger: every one that is not ours is a finding."""
    SHARED = "shared"
    """Any ledger whose id is not to be imported."""


class FindingReason(ClosedEnum):
    """The reasons why a switch is not ready."""

    FOREIGN_ID = (
        "foreign_id",
        "Ledgers that Headgate did not make have ids to import (in a dedicated target: any id).",
    )
    DELETED_ID = "deleted_id", "An id to import was deleted from the target before: bookies may still hold its entries."
    IDGEN_BEHIND = "idgen_behind", "The target would give ids that are taken; advance it to `hob`."
    UNKNOWN_CLUSTER = "unknown_cluster", "References are attributed to a BookKeeper cluster that is not known."
    MISSING_LEDGER = "missing_ledger", "References are attributed to the target, which does not have their ledgers."
    AMBIGUOUS = "ambiguous", "One ledger id, or one cursor, is attributed to two clusters."
    LAYOUT = (
        "layout",
        "A layout is unknown or cannot hold every id, a reference names an impossible ledger id, or a znode of a "
        "dedicated target lies where its layout puts none.",
    )
    ALIAS = "alias", "Source and target are one cluster under two names."
    SNAPSHOT_INCOMPLETE = "snapshot_incomplete", "A value could not be read."
    FROM_THE_FUTURE = "from_the_future", "A reading is dated later than now, so its age is not known."
    STALE = "stale", "The oldest reading is older than `precheck_validity`."


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def why_not_a_name(name: str) -> str | None:
    """Return why a text cannot be the name of a cluster; None if it can."""
    if _NAME.fullmatch(name):
        return None
    return (
        "becomes the name of a znode: 1 to 63 letters, digits, dots, underscores and hyphens, the first of them a "
        "letter or digit"
    )


class ClusterSnapshot(Struct, array_like=True, frozen=True, kw_only=True):
    """A BookKeeper cluster as last read. None: the value could not be read."""

    name: str
    instance_id: str | None
    """Its ``INSTANCEID``. With the root it is the cluster's identity, however its address is spelled."""
    root: str | None
    layout: Layout | None
    generator: IdGenerator | None
    read_ms: InstantMs
    epoch: int = -1
    lower_counters: int = 0
    """The number of counters below the present one: `idgen` and every lower ``HOB``."""
    lower_given: int = 0
    """The number of ids that all counters below the present one gave; only clients that remember them use them."""
    lower_moved_ms: InstantMs = -1
    """When one of these last gave an id."""
    raised_epoch: int = -1
    """The epoch of the reading that first showed the present ``HOB``: a client opened at that epoch or before may use a
    lower one. -1: no later ``HOB`` was made since the cluster was first read."""


def are_same_cluster(one: ClusterSnapshot, other: ClusterSnapshot) -> bool:
    """Whether two snapshots have the same identity: instance id and root, not the name."""
    return (
        one.instance_id is not None
        and one.instance_id == other.instance_id
        and (one.root or "").rstrip("/") == (other.root or "").rstrip("/")
    )


class IdMark(Struct, array_like=True, frozen=True):
    """The highest ledger ids of one BookKeeper cluster."""

    instance: str
    name: str
    """The cluster's name when it was last read."""
    given: int = -1
    """The greatest id known to be given. An advance to a later ``HOB`` skips ids: they do not count."""
    ceiling: int = -1
    """The greatest id that the cluster may have given, or may still give while brokers write there."""
    written: bool = False
    """Whether brokers of this fleet were ever sent there: then some may have written to it, reported or not."""
    floor: int = -1
    """The cluster's next id when brokers were first sent there: this fleet got none of the ids below."""

    @property
    def given_to_us(self) -> int:
        """The greatest id that brokers of this fleet may have got there; -1 if they got none."""
        return self.given if self.given >= self.floor else -1


def raise_marks(marks: dict[str, IdMark], seen: ClusterSnapshot) -> dict[str, IdMark]:
    """Raise a cluster's mark to the ids just read; a snapshot without identity or generator changes nothing."""
    if seen.instance_id is None or seen.generator is None:
        return marks
    before = marks.get(seen.instance_id) or IdMark(seen.instance_id, seen.name)
    given, ceiling = max(before.given, seen.generator.given), max(before.ceiling, seen.generator.ceiling)
    return _put_mark(marks, replace(before, name=seen.name, given=given, ceiling=ceiling))


def mark_written(marks: dict[str, IdMark], seen: ClusterSnapshot | None, *, from_now: bool) -> dict[str, IdMark]:
    """Mark a cluster as one that brokers may have written to; a cluster that was never read gets no mark.

    If they are sent there only from now on, they got none of the ids that it gave before.
    """
    if seen is None or seen.instance_id is None:
        return marks
    before = marks.get(seen.instance_id) or IdMark(seen.instance_id, seen.name)
    next_id = seen.generator.next_id if seen.generator and from_now else -1
    return _put_mark(marks, replace(before, written=True, floor=before.floor if before.written else next_id))


def _put_mark(marks: dict[str, IdMark], mark: IdMark) -> dict[str, IdMark]:
    return dict(sorted((marks | {mark.instance: mark}).items()))
