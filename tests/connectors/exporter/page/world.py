"""A loop in virtual time with something of every policy, and the site that shows it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from connectors.exporter.loop_view import LoopView
from connectors.exporter.page.site import StatusSite
from connectors.kafka.tail import Record
from connectors.views import LoopSnapshot
from policies.observations import Outcome
from policies.switching.state import SwitchStage
from policies.throttle import LogDirs, ThrottleSettings
from policies.throttle.readings import VolumeReading
from policies.units import to_millis
from policies.wire import observation_event
from tests.connectors.exporter import loop as throttle
from tests.connectors.isolation import test_view as isolation
from tests.connectors.sessions import test_view as sessions
from tests.policies.bookie_disks import scenario as bookie_disks
from tests.policies.switching.wire import WireWorld

START, PREFIX = throttle.START, throttle.PREFIX
LIMITS = {"hard": {"available_ratio_below": 0.05}, "soft": {"available_ratio_below": 0.2}, "min_hold": "0s"}
TERABYTE = 10**12


def log_dirs(free: float, cluster: str = "payments", log_dir: str = "/data", broker: int = 1) -> LogDirs:
    """A reading of one volume, of which the share `free` is free."""
    volume = VolumeReading(log_dir=log_dir, total_bytes=TERABYTE, usable_bytes=int(TERABYTE * free))
    return LogDirs(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=(volume,))


class World:
    """Readings and decisions as they would come from Kafka, and the site over them."""

    def __init__(self) -> None:
        self.now = START
        self.behind: str | None = None
        self.view = LoopView(PREFIX, {"throttle": ThrottleSettings.model_validate(LIMITS)})
        self.pictures = 0
        self.silence: str | None = None
        self.seconds = 0.0
        self.site = StatusSite(self.picture, version="0.1.0", settings_hash="cafe", clock=lambda: self.seconds)
        self._loops: dict[str, throttle.Loop] = {}

    def picture(self) -> LoopSnapshot:
        self.pictures += 1
        picture = LoopSnapshot(self.now, self.behind) if self.behind else self.view.snapshot(to_millis(self.now))
        return replace(picture, silence=self.silence)

    def later(self, **span: float) -> None:
        """Let time pass for the loop and for the site."""
        self.now += timedelta(**span)
        self.seconds += timedelta(**span).total_seconds()

    def read(self, *readings: Any, cluster: str = "payments") -> None:
        """Let the throttle policy decide on readings of a cluster."""
        if cluster not in self._loops:
            self._loops[cluster] = throttle.Loop(cluster=cluster, view=self.view, **LIMITS)
        self._loops[cluster].now = self.now
        self._loops[cluster].step(*readings)

    def watched(self, policy: str, cluster: str) -> None:
        """Publish a heartbeat of a policy for a cluster."""
        self.view.fold([throttle.standing(policy, self.now, cluster)], live=True)

    def everything(self, *, with_fill: bool = True) -> "World":
        """Publish decisions of every policy, with a problem in each."""
        if with_fill:
            self.read(throttle.members(1, 2), log_dirs(0.1), log_dirs(0.5, broker=2))
        self.watched("throttle", "payments")
        bookies = isolation.Loop()
        bookies.view, bookies.now = self.view, self.now
        bookies.step(isolation.bookies("b1", "b2", "b3"), isolation.racks(g=("b1", "b2")), isolation.affinity(ns="g"))
        self._sessions()
        self._switch()
        self._disks()
        return self

    def _disks(self) -> None:
        seen = bookie_disks.all_disks(0, b1=50, b2=16)
        run = bookie_disks.Run(bookie_disks.settings()).see(*seen)
        for each in seen:
            value = observation_event(each.reading, id=each.id, source="test", time=self.now)
            self._take("observed.bookie-disks", bookie_disks.CLUSTER, value)
        for decision in run.decided():
            self.view.fold(
                [
                    throttle.decided(
                        decision.model_copy(
                            update={"decided_at": self.now, "valid_until": self.now + timedelta(minutes=5)}
                        )
                    )
                ],
                live=True,
            )

    def _sessions(self) -> None:
        members = sessions.Loop()
        members.view, members.now = self.view, self.now
        up = [sessions.session(sessions.CONNECTED, f"b{i}:8080", i) for i in (1, 2, 3, 4)]
        members.step(*up, sessions.owned("acme/n/0x0"))
        self.later(seconds=1)
        members.now = self.now
        members.step(sessions.session(sessions.DISCONNECTED, "b2:8080", 2), *up[:1], *up[2:])

    def _switch(self) -> None:
        switch = WireWorld()
        switch.to(SwitchStage.BUILD)
        for number, record in enumerate(switch.records()):
            # That world's clock is another.
            at = {"decided_at": self.now, "sequence": to_millis(self.now) + number, "valid_until": None}
            self.view.fold([throttle.decided(record.model_copy(update=at))], live=True)

    def _take(self, topic: str, key: str, value: bytes) -> None:
        self.view.fold([Record(f"{PREFIX}.{topic}", key.encode(), value, to_millis(self.now))], live=True)
