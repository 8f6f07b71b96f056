"""CPU seconds of a step of the sessions policy, at 300 brokers of 30 bundles each, against any commit.

A host steps the policy as the query does: state decoded, stepped, state and records encoded. A step takes
one reading of each session and of both trees. The fleet loses its sessions, gets others, and owns its bundles again.

    python bench/sessions_step.py
    python bench/sessions_step.py --against 5e721fb
"""

import argparse
import time
from datetime import UTC, datetime, timedelta

from bench.turns import Figures, run
from policies.observations import Observation, Reading
from policies.sessions import Ownerships, SessionsSettings, ZkSession
from policies.sessions.readings import BROKERS, NAMESPACES, OwnedNode, SessionState
from streaming.host import PolicyHost
from streaming.key_state import decode, encode

BROKERS_COUNT, BUNDLES_EACH = 300, 30
_START = datetime(2026, 1, 1, tzinfo=UTC)
_NAMES = [f"broker-{n:03}.brokers.example.org:8080" for n in range(BROKERS_COUNT)]


class Fleet:
    """A fleet at seconds after a start, and a host that has its state."""

    def __init__(self) -> None:
        self._host = PolicyHost({"sessions": SessionsSettings()})
        self._remembered: bytes | None = None
        self.records = 0

    def step(self, second: float, *readings: Reading) -> float:
        """Return the CPU seconds of a step with these readings, which do not depend on other load."""
        now = _START + timedelta(seconds=second)
        seen = [Observation(f"{second}/{n}", now, reading) for n, reading in enumerate(readings)]
        began = time.process_time()
        before = None if self._remembered is None else decode(self._remembered)
        stepped = self._host.step("sessions", "c", before, seen, now)
        self._remembered = encode(stepped.key_state)
        took = time.process_time() - began
        assert stepped.failure is None, stepped.failure
        self.records = len(stepped.step.decisions)
        return took


def readings(number: int, state: SessionState = SessionState.CONNECTED, *, owned: bool = True) -> list[Reading]:
    """Return one reading of each session, and of both trees, while members have their session with this number."""
    seen: list[Reading] = [
        ZkSession(cluster="c", member=name, session=f"0x{number}{n:03}", state=state, timeout_ms=30_000)
        for n, name in enumerate(_NAMES)
    ]
    registered = [OwnedNode(path=f"{BROKERS}/{name}", owner_member=name, session=f"0x{number}{n:03}", version=0)
                  for n, name in enumerate(_NAMES)]  # fmt: skip
    bundles = [
        OwnedNode(path=f"{NAMESPACES}/tenant/ns-{n}/0x{b:08x}_0x{b + 1:08x}", owner_member=name,
                  session=f"0x{number}{n:03}", version=0)
        for n, name in enumerate(_NAMES) for b in range(BUNDLES_EACH)
    ]  # fmt: skip
    for tree, nodes in ((BROKERS, registered), (NAMESPACES, bundles)):
        seen.append(Ownerships(cluster="c", tree=tree, nodes=tuple(nodes) if owned else ()))
    return seen


def measure(_: argparse.Namespace) -> Figures:
    """Measure each kind of step."""
    fleet, records = Fleet(), 0
    seconds = {"first": fleet.step(0, *readings(1))}
    seconds["equal readings"] = min(fleet.step(second, *readings(1)) for second in (5, 10, 15, 20))
    seconds["all lost"] = fleet.step(25, *readings(1, SessionState.EXPIRED, owned=False))
    seconds["still lost"] = fleet.step(30, *readings(1, SessionState.EXPIRED, owned=False))
    seconds["all back"] = fleet.step(35, *readings(2)[:BROKERS_COUNT])
    records += fleet.records
    seconds["absent bundles read"] = fleet.step(36, *readings(2, owned=False))
    records += fleet.records
    seconds["owned again"] = fleet.step(41, *readings(2))
    figures = {f"sessions step: {what}, s": taken for what, taken in seconds.items()}
    return figures | {"sessions step: records until each bundle is to be owned again": float(records)}


def main() -> None:
    """Measure and print."""
    run(__doc__ or "", measure, argparse.ArgumentParser())


if __name__ == "__main__":
    main()
