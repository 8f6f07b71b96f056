"""What a process still knows of the policies it stepped last."""

from policies.throttle import ThrottlePolicy, ThrottleSettings
from streaming.host import PolicyHost, recall, remember
from streaming.warm import OF_THIS_PROCESS, Kept, Warm, WarmKey
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs

SETTINGS = ThrottleSettings.model_validate(SOFT_AND_HARD)


def warm(size: int) -> Warm:
    return Warm(ThrottlePolicy(CLUSTER, SETTINGS), None, b"x" * size)


def key(cluster: str) -> WarmKey:
    return WarmKey(ThrottlePolicy, cluster, "hash")


def test_what_is_taken_is_nobody_elses_and_there_is_never_more_than_there_is_room_for() -> None:
    kept: Kept[WarmKey, Warm] = Kept(most_bytes=100)
    for name in ("a", "b", "c"):
        kept.keep(key(name), warm(40))
    assert kept.take(key("c")) is None
    assert kept.take(key("a")) is not None
    assert kept.take(key("a")) is None
    kept.keep(key("b"), warm(90))
    kept.keep(key("d"), warm(10))
    assert kept.take(key("b")) is not None
    kept.keep(key("huge"), warm(101))
    assert (kept.take(key("huge")), kept.take(key("d")) is not None) == (None, True)


def test_of_a_fleet_that_is_a_little_too_large_most_are_found_again() -> None:
    """Each batch goes through all keys: to forget the oldest would be to forget each before its transition."""
    kept: Kept[WarmKey, Warm] = Kept(most_bytes=1000)
    found = 0
    for _ in range(20):
        for number in range(11):
            found += kept.take(key(f"c{number}")) is not None
            kept.keep(key(f"c{number}"), warm(100))
    assert found > 0.7 * 20 * 11


def test_who_comes_late_and_stays_is_kept_in_place_of_who_is_no_more() -> None:
    kept: Kept[WarmKey, Warm] = Kept(most_bytes=1000)
    for number in range(10):
        kept.keep(key(f"gone{number}"), warm(100))
    for _ in range(8 * 10):
        for number in range(5):
            late = kept.take(key(f"late{number}")) or warm(100)
            kept.keep(key(f"late{number}"), late)
    assert all(kept.take(key(f"late{number}")) for number in range(5))


def decided(*, forgetting: bool) -> list[bytes]:
    """A course with a new host for each batch, as Spark has it, and its state as bytes."""
    stored: bytes | None = None
    said: list[bytes] = []
    for number in range(40):
        free = 6 * GB - number * GB // 8
        if forgetting:
            OF_THIS_PROCESS.take(WarmKey(ThrottlePolicy, CLUSTER, SETTINGS.fingerprint()))
        stepped = PolicyHost({"throttle": SETTINGS}).step(
            "throttle", CLUSTER, recall(stored) if stored else None, [log_dirs(number * 10, 1, free)], at(number * 10)
        )
        stored = remember(stepped.remembered)
        said += [stored, *(output.value for output in stepped.outputs)]
    return said


def test_a_process_that_remembers_decides_byte_for_byte_as_one_that_does_not() -> None:
    assert decided(forgetting=False) == decided(forgetting=True)


def test_a_state_that_another_process_wrote_is_believed_and_not_ones_own() -> None:
    host = PolicyHost({"throttle": SETTINGS})
    first = host.step("throttle", CLUSTER, None, [log_dirs(0, 1, 6 * GB)], at(0)).remembered
    elsewhere = host.step("throttle", CLUSTER, first, [log_dirs(10, 1, 3 * GB)], at(10))
    host.step("throttle", CLUSTER, first, [log_dirs(10, 1, 9 * GB)], at(10))
    after = host.step("throttle", CLUSTER, elsewhere.remembered, [], at(11))
    assert after.step.state.cluster.brokers[0].volumes[0].usable_bytes == 3 * GB
    assert after.step.state.gate.factor == 0.5
