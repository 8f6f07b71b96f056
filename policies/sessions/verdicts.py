"""What each member is to do now: the rules in their order, the first that fits decides.

Nothing that cannot be taken back is decided on what is not known: while a member's session is past its validity, what
was said last stays said; while ZooKeeper cannot be read, nobody is shut down or restarted.
"""

from policies.sessions import fleet, recovery, zombie
from policies.sessions.decision import SessionEvent, Status
from policies.sessions.decision import SessionReason as R
from policies.sessions.decision import SessionVerdict as V
from policies.sessions.member import Track
from policies.sessions.readings import SessionState
from policies.sessions.scene import Order, Scene, ids
from policies.sessions.settings import OnSessionLost, monitor_ms
from policies.sessions.state import Member
from policies.units import human_seconds, millis_of


def order_of(member: Member, scene: Scene) -> Order | None:
    """What a member is to do; null when nothing is to be said, or what was said stays."""
    if (order := _zombie(member, scene)) is not None:
        return order
    track = member.track
    if track is None or not scene.is_fresh(member) or _stays(member, track, scene):
        return None
    if track.status is Status.CLOSED:
        what = "has closed its session in an orderly shutdown: its bundles are free for others"
        return Order(V.GONE, R.CLOSED, what, (member.read_id,))
    if zombie.is_dead(member, scene.now_ms, scene.settings) and member.health is not None:
        what = f"has lost its session, and its health endpoint does not answer ({member.health.outcome}): it is gone"
        return Order(V.GONE, R.UNREACHABLE, what, (member.read_id, member.health.id))
    if track.unsettled:
        return _unsettled(member, track, scene)
    return _RULES[track.status](member, track, scene)


def _stays(member: Member, track: Track, scene: Scene) -> bool:
    """Whether a shutdown or restart was decided that still stands: it is said once."""
    said = member.said
    if said is not None and said.verdict is V.RESTART:
        node = scene.node(member)
        back = (node is not None and node.exists) or (track.reestablished_ms or 0) > said.said_ms
        return track.status is not Status.CLOSED and not back
    if said is None or said.lost_ms != track.lost_ms:
        return False
    if said.verdict is not V.SHUTDOWN or track.status is Status.CLOSED:
        return False
    return not zombie.is_dead(member, scene.now_ms, scene.settings) and (
        (track.status is Status.SESSION_LOST) != (said.reason is R.NOT_READY)
    )


def _zombie(member: Member, scene: Scene) -> Order | None:
    node, health = scene.node(member), member.health
    due_ms = zombie.zombie_ms(member, node, scene.now_ms, scene.settings)
    if due_ms is None or due_ms > scene.now_ms or node is None or health is None:
        return None
    said, track = member.said, member.track
    if said is not None and said.verdict is V.RESTART and health.down_ms <= said.said_ms:
        return None
    if track is not None and said is not None and said.verdict is V.SHUTDOWN and _stays(member, track, scene):
        return None  # it is to go down already
    # Right after a loss of the fleet nobody knows yet who comes back by himself.
    if scene.unread is not None or _lost_lately(member, scene):
        return None
    since = human_seconds((scene.now_ms - (node.changed_ms)) / 1000)
    what = f"says it is healthy, but has had no registration for {since}"
    evidence = (health.id, node.read_id)
    if scene.budget.spend(member.member, scene.now_ms):
        return Order(V.RESTART, R.ZOMBIE, f"{what}: only a restart cures it", evidence)
    return Order(V.HOLD, R.SHUTDOWN_BUDGET, f"{what}; {scene.spent()}", evidence)


def _lost_lately(member: Member, scene: Scene) -> bool:
    lost_ms = member.track.lost_ms if member.track else None
    window_ms = millis_of(scene.settings.fleet_window)
    return member.fleet_wide and lost_ms is not None and scene.now_ms - lost_ms < window_ms


def _unsettled(member: Member, track: Track, scene: Scene) -> Order:
    settle_ms = millis_of(scene.settings.settle)
    left_ms = track.since_ms + settle_ms - scene.now_ms
    what = (
        f"lost its session {len(track.losses)} times within {human_seconds(settle_ms / 1000)}: nothing of its is "
        f"cleaned up before it has been stable for as long, {human_seconds(left_ms / 1000)} from now"
    )
    return Order(V.HOLD, R.UNSETTLED, what, (member.read_id,), left_ms)


def _connection_lost(member: Member, track: Track, scene: Scene) -> Order:
    left_ms = max(0, (track.lapse_ms or 0) - scene.now_ms)
    whole = human_seconds(monitor_ms(track.timeout_ms) / 1000)
    what = f"is disconnected from ZooKeeper: it keeps serving, {human_seconds(left_ms / 1000)} left of {whole}"
    return Order(V.HOLD, R.CONNECTION_LOST, what, (member.read_id,), left_ms)


def _session_lost(member: Member, track: Track, scene: Scene) -> Order:
    settings, lost_ms = scene.settings, track.lost_ms or 0
    if scene.is_exhausted(member):
        return _exhausted(member, lost_ms, scene)
    how = "expired" if track.state is SessionState.EXPIRED else "lost"
    left_ms = lost_ms + millis_of(settings.reconnect_deadline) - scene.now_ms
    in_time = f"it keeps serving what is loaded, and has {human_seconds(left_ms / 1000)} left to reconnect"
    if settings.on_session_lost is OnSessionLost.RECONNECT:
        return Order(
            V.RECONNECT, R.SESSION_LOST, f"has lost its session ({how}): {in_time}", (member.read_id,), left_ms
        )
    if (guard := _guard(member, scene)) is not None:
        why, evidence = guard
        return Order(V.RECONNECT, R.FLEET_WIDE, f"has lost its session, {why}: {in_time}", evidence, left_ms)
    confirm_ms = lost_ms + millis_of(settings.shutdown_delay) - scene.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"has lost its session ({how}): it is shut down in {wait}, unless others lose theirs as well"
        return Order(V.HOLD, R.CONFIRMING, what, (member.read_id,), confirm_ms)
    if scene.budget.spend(member.member, scene.now_ms):
        what = f"has lost its session ({how}), {_shares(member, scene)}: it is to shut down"
        return Order(V.SHUTDOWN, R.SESSION_LOST, what, (member.read_id,))
    what = f"has lost its session ({how}) and should shut down, but {scene.spent()}: {in_time}"
    return Order(V.RECONNECT, R.SHUTDOWN_BUDGET, what, (member.read_id,), left_ms)


def _exhausted(member: Member, lost_ms: int, scene: Scene) -> Order:
    tried = human_seconds((scene.now_ms - lost_ms) / 1000)
    what = f"has not reconnected in {tried} and {member.attempts} failed attempts"
    evidence = ids(member.attempted[1] if scene.has_reported(member) else "", member.read_id)
    if scene.unread is not None:
        return Order(V.RECONNECT, R.FLEET_WIDE, f"{what}, but ZooKeeper cannot be read ({scene.unread[0]})", evidence)
    lost = fleet.lost_now(scene.peers(member), scene.settings)
    if member.fleet_wide and lost.is_fleet_wide:
        return Order(V.RECONNECT, R.FLEET_WIDE, f"{what}, nor have {lost.lost} of {lost.members} in all", evidence)
    if scene.budget.spend(member.member, scene.now_ms):
        return Order(V.SHUTDOWN, R.RECONNECT_EXHAUSTED, f"{what}: it is to shut down", evidence)
    return Order(V.RECONNECT, R.SHUTDOWN_BUDGET, f"{what} and should shut down, but {scene.spent()}", evidence)


def _guard(member: Member, scene: Scene) -> tuple[str, tuple[str, ...]] | None:
    """Why a member is not shut down for the loss of its session; null when it may be."""
    if scene.unread is not None:
        return f"but ZooKeeper cannot be read ({scene.unread[0]})", (member.read_id, *scene.unread[1])
    if not member.fleet_wide:
        return None
    of_role = scene.peers(member)
    also = [
        m.read_id
        for m in of_role
        if m.track and m.track.status is Status.SESSION_LOST and m is not member and scene.is_fresh(m)
    ]
    return f"and so have others: {_shares(member, scene)}", (member.read_id, *also)


def _shares(member: Member, scene: Scene) -> str:
    lost = fleet.lost_together(member, scene.peers(member), scene.settings)
    window = human_seconds(scene.settings.fleet_window.total_seconds())
    return f"{lost.lost} of {lost.members} within {window}, where {lost.needed} would be fleet-wide"


def _established(member: Member, track: Track, scene: Scene) -> Order | None:
    said = member.said
    if said is not None and said.verdict is V.RESTART:
        return Order(V.RESUME, R.REGISTERED, "has registered itself again", scene.evidence(member))
    if (order := _not_ready(member, scene)) is not None:
        return order
    if member.recovering:
        return recovery.progress(member, track, scene)
    if SessionEvent.JOINED in member.events:
        return Order(V.RESUME, R.JOINED, "is back with a new session after an orderly shutdown", (member.read_id,))
    if SessionEvent.RECONNECTED in member.events or (said is not None and said.reason is R.CONNECTION_LOST):
        what = "has reconnected in time: it still owns what it owned, and caches filled before are to be invalidated"
        return Order(V.RESUME, R.RECONNECTED, what, (member.read_id,))
    return recovery.load_data(member, track, scene)


def _not_ready(member: Member, scene: Scene) -> Order | None:
    node, health = scene.node(member), member.health
    if health is None or not zombie.is_not_ready(member, node, scene.now_ms, scene.settings):
        return None
    if scene.unread is not None:
        return None
    what = "has a session again and is registered, but the cluster does not list it"
    evidence = ids(health.id, *scene.evidence(member))
    if scene.budget.spend(member.member, scene.now_ms):
        return Order(V.SHUTDOWN, R.NOT_READY, f"{what}: it is to shut down", evidence)
    return Order(V.HOLD, R.SHUTDOWN_BUDGET, f"{what}; {scene.spent()}", evidence)


_RULES = {
    Status.CONNECTION_LOST: _connection_lost,
    Status.SESSION_LOST: _session_lost,
    Status.ESTABLISHED: _established,
}
