"""What the sessions policy warns of: conditions that are the case now.

Absence of data neither raises nor resolves anything: while the readings a condition rests on are too old, what was said
stays said.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from policies.alerts import AlertBook, Condition, Entry
from policies.decisions import Severity
from policies.sessions import fleet, zombie
from policies.sessions.decision import SessionVerdict, Status
from policies.sessions.readings import BROKERS, NAMESPACES
from policies.sessions.recovery import claims_by_path, has_published
from policies.sessions.scene import Scene, ids
from policies.sessions.state import NEVER, Member, Node
from policies.units import human_seconds, millis_of

LOST = "session-lost"
ZOMBIE = "zombie-member"
FLEET_WIDE = "session-fleet-wide"
EXHAUSTED = "reconnect-exhausted"
DOUBLE = "double-ownership"
ORPHAN = "orphan-bundle"
UNREAD = "zookeeper-unread"
FLAPPING = "session-flapping"
NOT_EPHEMERAL = "bundle-not-ephemeral"
LOAD_DATA = "load-data-missing"

_OF_SESSIONS = frozenset({LOST, FLEET_WIDE, EXHAUSTED, FLAPPING, LOAD_DATA})
_OF_BUNDLES = frozenset({ORPHAN, NOT_EPHEMERAL})


@dataclass(frozen=True, slots=True)
class View:
    """What the conditions are read from."""

    cluster: str
    scene: Scene
    book: AlertBook


def conditions(view: View) -> Iterator[Condition]:
    """Everything that is the case now, and what was said of what is not known now."""
    held = {c.key: c for c in _conditions(view)}
    yield from held.values()
    unknown = _unknown_subjects(view)
    for entry in view.book.entries:
        key = (entry.alert, entry.subject)
        if entry.said_ms is not None and key not in held and key in unknown:
            yield _as_said(entry)


def orphan_ms(node: Node, scene: Scene) -> int | None:
    """When an absent bundle is an orphan; null while it has an owner, or its last owner is not settled."""
    if node.exists or node.prior is None:
        return None
    if node.prior in node.path.split("/"):
        return None  # a broker's own heartbeat namespace, which bears its name: nobody else would take it
    since_ms, owner = node.changed_ms, scene.known.members.get(node.prior)
    if owner is not None and owner.track is not None:
        gone = owner.said is not None and owner.said.verdict is SessionVerdict.GONE
        settled = owner.track.status in (Status.ESTABLISHED, Status.CLOSED) and not owner.track.unsettled
        if not settled and not gone:
            return None
        since_ms = max(since_ms, owner.track.reestablished_ms or NEVER)
    return since_ms + millis_of(scene.settings.orphan_after)


def _conditions(view: View) -> Iterator[Condition]:
    yield from _unread(view)
    yield from _lost(view)
    for member in view.scene.known.members.values():
        yield from _of_member(view, member)
    yield from _double(view)
    validity_ms = millis_of(view.scene.settings.validity)
    for node in view.scene.known.nodes.bundles():
        if view.scene.now_ms - node.read_ms <= validity_ms:
            yield from _of_bundle(view, node)


def _unread(view: View) -> Iterator[Condition]:
    if view.scene.unread is None:
        return
    why, evidence = view.scene.unread
    yield Condition(
        alert=UNREAD,
        subject=view.cluster,
        severity=Severity.WARNING,
        reason=why,
        summary=f"ZooKeeper of {view.cluster} cannot be read ({why}): that is no loss of sessions, and nobody is shut "
        "down for it",
        labels={"cluster": view.cluster},
        evidence=evidence[:10],
    )


def _lost(view: View) -> Iterator[Condition]:
    """One for a fleet that lost its sessions together, else one for each member."""
    scene = view.scene
    marked = fleet.marked(scene.known.members, scene.now_ms, scene.settings)
    roles = {scene.known.members[name].role for name in marked}
    for role in sorted(roles):
        of_role = fleet.peers(scene.known.members.values(), role, scene.now_ms, scene.settings)
        lost = sorted((m for m in of_role if m.track and m.track.status is Status.SESSION_LOST), key=lambda m: m.member)
        names = ", ".join(m.member for m in lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        yield Condition(
            alert=FLEET_WIDE,
            subject=f"{view.cluster}/{role}",
            severity=Severity.CRITICAL,
            reason="fleet_wide",
            summary=f"{len(lost)} of {len(of_role)} members of the role {role} of {view.cluster} have lost their "
            f"sessions together: {names}",
            labels={"cluster": view.cluster, "role": role},
            evidence=ids(*(m.read_id for m in lost))[:10],
        )
    for member in scene.known.members.values():
        track = member.track
        if track is None or track.status is not Status.SESSION_LOST or member.role in roles:
            continue
        if scene.is_fresh(member):
            lost_for = human_seconds((scene.now_ms - (track.lost_ms or 0)) / 1000)
            what = f"has had no ZooKeeper session for {lost_for}"
            yield _member(view, LOST, Severity.WARNING, "session_lost", member, what)


def _of_member(view: View, member: Member) -> Iterator[Condition]:
    scene, track, said = view.scene, member.track, member.said
    zombie_ms = zombie.zombie_ms(member, scene.node(member), scene.now_ms, scene.settings)
    if zombie_ms is not None and zombie_ms <= scene.now_ms:
        what = "says it is healthy, but is not registered and owns nothing: only a restart cures it"
        yield _member(view, ZOMBIE, Severity.CRITICAL, "zombie", member, what)
    if track is None or not scene.is_fresh(member):
        return
    told = said is not None and said.verdict in (SessionVerdict.SHUTDOWN, SessionVerdict.GONE)
    if track.status is Status.SESSION_LOST and scene.is_exhausted(member) and not told:
        what = f"cannot reconnect ({member.attempts} failed attempts), and is not shut down"
        yield _member(view, EXHAUSTED, Severity.CRITICAL, "reconnect_exhausted", member, what)
    if track.unsettled:
        what = (
            f"lost its session {len(track.losses)} times within {human_seconds(scene.settings.settle.total_seconds())}"
        )
        yield _member(view, FLAPPING, Severity.WARNING, "unsettled", member, what)
    due_ms = load_data_alert_ms(member, scene)
    if due_ms is not None and due_ms <= scene.now_ms:
        what = "has its bundles again, but has published no load data though it was told to"
        yield _member(view, LOAD_DATA, Severity.WARNING, "load_data_missing", member, what)


def load_data_alert_ms(member: Member, scene: Scene) -> int | None:
    """When load data that a member was told to publish is missed; null where that is not watched."""
    said, node = member.said, scene.node(member)
    watched = node is not None or any(BROKERS.startswith(name) for name in scene.known.sources if name)
    if member.awaited_ms is None or member.track is None or not watched:
        return None
    if said is None or said.verdict is not SessionVerdict.REPUBLISH_LOAD_DATA:
        return None
    published = has_published(member, member.track, node)
    return None if published else said.said_ms + millis_of(scene.settings.load_data_after)


def _double(view: View) -> Iterator[Condition]:
    for path, claims in claims_by_path(view.scene.known.claims.values()).items():
        if len(claims) < 2:
            continue
        names = sorted(claim.member for claim in claims)
        node = view.scene.known.nodes.get(path)
        winner = node.session if node is not None and node.exists else None
        yield _bundle(
            view, DOUBLE, Severity.CRITICAL, "double_ownership", path,
            f"is claimed by {' and '.join(names)}; its node belongs to the session {winner or 'of nobody'}",
            ids(node.read_id if node else "", *(view.scene.known.members[m].read_id for m in names)),
        )  # fmt: skip


def _of_bundle(view: View, node: Node) -> Iterator[Condition]:
    if node.exists and not node.ephemeral:
        what = f"has a node that is not ephemeral, so it would never be free again (it names {node.owner or 'nobody'})"
        yield _bundle(view, NOT_EPHEMERAL, Severity.WARNING, "not_ephemeral", node.path, what, ids(node.read_id))
    due_ms = orphan_ms(node, view.scene)
    if due_ms is not None and due_ms <= view.scene.now_ms:
        away = human_seconds((view.scene.now_ms - node.changed_ms) / 1000)
        what = f"has had no owner for {away}; the last was {node.prior}"
        yield _bundle(view, ORPHAN, Severity.WARNING, "absent", node.path, what, ids(node.read_id))


def _unknown_subjects(view: View) -> set[tuple[str, str]]:
    """The alerts (name, subject) about which nothing is known now."""
    scene, validity_ms = view.scene, millis_of(view.scene.settings.validity)
    found: set[tuple[str, str]] = set()
    for member in scene.known.members.values():
        if member.track is not None and not scene.is_fresh(member):
            found |= {(alert, f"{view.cluster}/{member.member}") for alert in _OF_SESSIONS}
            found.add((FLEET_WIDE, f"{view.cluster}/{member.role}"))
        node, health = scene.node(member), member.health
        old = [r for r in (node and node.read_ms, health and health.at_ms) if r and scene.now_ms - r > validity_ms]
        if old or scene.unread is not None:
            found.add((ZOMBIE, f"{view.cluster}/{member.member}"))
    for node in scene.known.nodes.bundles():
        if scene.now_ms - node.read_ms > validity_ms:
            found |= {(alert, _bundle_subject(view, node.path)) for alert in _OF_BUNDLES}
    return found


def _as_said(entry: Entry) -> Condition:
    severity = Severity(entry.severity)
    return Condition(entry.alert, entry.subject, severity, entry.reason, entry.summary, entry.labels)


def _member(view: View, alert: str, severity: Severity, reason: str, member: Member, what: str) -> Condition:
    labels = {"cluster": view.cluster, "member": member.member, "role": member.role}
    evidence = ids(member.read_id, member.health.id if member.health else "")
    summary = f"{member.role} {member.member} of {view.cluster} {what}"
    return Condition(alert, f"{view.cluster}/{member.member}", severity, reason, summary, labels, evidence)


def _bundle(
    view: View, alert: str, severity: Severity, reason: str, path: str, what: str, evidence: tuple[str, ...]
) -> Condition:
    bundle = bundle_of(path)
    labels = {"cluster": view.cluster, "bundle": bundle}
    summary = f"bundle {bundle} of {view.cluster} {what}"
    return Condition(alert, f"{view.cluster}/{bundle}", severity, reason, summary, labels, evidence[:10])


def bundle_of(path: str) -> str:
    """The bundle a node stands for: ``tenant/namespace/range``."""
    return path.removeprefix(f"{NAMESPACES}/").lstrip("/")


def _bundle_subject(view: View, path: str) -> str:
    return f"{view.cluster}/{bundle_of(path)}"
