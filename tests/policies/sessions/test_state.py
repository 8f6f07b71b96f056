"""States that older versions wrote go on being read; what they do not say is not known."""

from pathlib import Path

import msgspec

from policies.sessions import SessionsState
from policies.sessions.state import NEVER
from tests.policies.sessions.course import Run, health, registered, session, tree

WRITTEN = Path(__file__).parent / "data" / "state-before-readings-had-one-before-them.hex"
"""Of four brokers: b1 was told to shut down at 15 s, b2 is cut off since 19 s and refused a connection at 17 s."""


def old() -> SessionsState:
    return msgspec.msgpack.decode(bytes.fromhex("".join(WRITTEN.read_text().split())), type=SessionsState)


def test_what_an_older_version_does_not_say_is_not_known() -> None:
    state = old()
    b1, b2, *_ = state.members
    assert (b1.track and b1.track.before_ms, b2.health and b2.health.before_ms) == (NEVER, NEVER)
    assert [(s.member, s.back_ms) for s in state.spent] == [("b1", NEVER)]
    assert [n.before_ms for n in state.nodes] == [NEVER, NEVER]
    assert not state.alerts.entries[0].is_unknown


def test_who_was_told_to_go_down_before_counts_until_it_is_back() -> None:
    run = Run(old(), on_session_lost="shutdown", shutdown_delay="5s", shutdown_window="30s")
    run.see(session(60, "b1", "expired", "0xb1"), session(60.1, "b3", "connected", "0xb3"))
    run.see(*[session(seconds, "b2", "expired", "0xb2") for seconds in (61, 66, 71)])
    assert "shutdown session_lost" not in [what for _, what in run.told("b2")]
    run.see(session(75, "b1", "connected", "0xnew"), registered(76, "b1", "0xnew"))
    run.see(*[session(seconds, "b2", "expired", "0xb2") for seconds in (77, 82)])
    assert run.told("b2")[-1][1] in ("shutdown session_lost", "reconnect fleet_wide")


def test_a_refusal_of_then_is_the_first_of_two_and_an_absence_begins_with_a_reading_of_now() -> None:
    run = Run(old()).see(health(20, "b2", "unreachable"), session(21, "b2", "expired", "0xb2"))
    assert run.told("b2")[-1][1] == "gone unreachable"
    run = Run(old()).see(tree(30, name="/loadbalance/brokers"), health(31, "b3"))
    assert run.told("b3") == []
