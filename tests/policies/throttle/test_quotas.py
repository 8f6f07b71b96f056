"""Which quotas are set for which clients, how low they may go at once, and who else sets them; and their settings."""

import json
import shlex
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.throttle.quotas import (
    DEFAULT_WINDOW_SECONDS,
    FREE_RATE,
    Contest,
    Coverage,
    PastRate,
    QuotaStep,
    RatesInForce,
    find_additions,
    find_coverage,
    find_deciding,
    full_rate_seconds,
    may_be_ours,
    note_put_back,
    record_entity,
    recorded_entity,
    takes_precedence,
)
from policies.throttle.settings import (
    DEFAULT,
    Cover,
    Entity,
    QuotaEntity,
    QuotaSettings,
    forget_command,
    parse_entity,
    write_name,
)
from tests.cases import for_each

BY_PRECEDENCE = [
    Entity("alice", "app"), Entity("alice", DEFAULT), Entity("alice"), Entity(DEFAULT, "app"), Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT), Entity(None, "app"), Entity(None, DEFAULT),
]  # fmt: skip
ANY = BY_PRECEDENCE[-1]
FLOOR = 65_536


def settings(*entities: Entity, cover: Cover = Cover.ALL, exclude: tuple[str, ...] = ()) -> QuotaSettings:
    written = [{kind.replace("-", "_"): write_name(name) for kind, name in each.parts} for each in entities]
    return QuotaSettings.model_validate({"entities": written, "cover": cover, "exclude": exclude})


def test_kafkas_order_of_precedence() -> None:
    for specific, general in combinations(BY_PRECEDENCE, 2):
        assert takes_precedence(specific, general)
        assert not takes_precedence(general, specific)


@pytest.mark.parametrize(
    ("entity", "other", "expected"),
    [
        pytest.param(Entity("bob"), Entity("alice", "app"), False, id="more general"),
        pytest.param(Entity("bob", "app"), Entity("alice"), False, id="another user"),
        pytest.param(Entity("bob", "other"), Entity(None, "app"), False, id="another client id"),
        pytest.param(Entity("bob"), Entity(None, "app"), True, id="a user, whose client may have that id"),
        pytest.param(Entity("bob"), Entity(DEFAULT), True, id="a user and the default user"),
        pytest.param(Entity("bob"), Entity("bob"), False, id="itself"),
    ],
)
def test_which_quota_is_applied_in_place_of_which(entity: Entity, other: Entity, expected: bool) -> None:
    assert takes_precedence(entity, other) is expected


RATES = {ANY: 1, Entity("alice"): 50_000_000, Entity("bob"): FLOOR, Entity("carol"): 50_000_000}


@pytest.mark.parametrize(
    ("given_settings", "expected"),
    [
        pytest.param(settings(ANY), Coverage((Entity("alice"), Entity("bob"), Entity("carol"))), id="all"),
        pytest.param(settings(ANY, exclude=("carol",)), Coverage((Entity("alice"), Entity("bob"))), id="excluded"),
        pytest.param(
            settings(ANY, cover=Cover.LISTED), Coverage((), (Entity("alice"), Entity("carol"))),
            id="listed: what is at the floor does not escape",
        ),
        pytest.param(settings(Entity("alice")), Coverage(), id="nothing more specific"),
    ],
)  # fmt: skip
def test_coverage(given_settings: QuotaSettings, expected: Coverage) -> None:
    assert find_coverage(given_settings, RATES) == expected


def test_the_deciding_quota_is_the_first_in_kafkas_order_and_an_empty_id_has_those_of_users_only() -> None:
    for number in range(len(BY_PRECEDENCE)):
        assert find_deciding(BY_PRECEDENCE[number:], "alice", "app") == BY_PRECEDENCE[number]
    assert find_deciding(BY_PRECEDENCE, "alice", "") == Entity("alice")
    assert find_deciding([e for e in BY_PRECEDENCE if e.user != "alice"], "alice", "") == Entity(DEFAULT)
    assert find_deciding([e for e in BY_PRECEDENCE if e.client_id is not None], "alice", "") is None
    assert find_deciding(BY_PRECEDENCE, "bob", "other") == Entity(DEFAULT, DEFAULT)


ANY_USER, EACH = Entity(DEFAULT), Entity(DEFAULT, DEFAULT)
APP = Entity(None, "app")
ADDED: dict[str, tuple[QuotaSettings, dict[Entity, int], dict[Entity, int], bool, dict[Entity, int]]] = {
    "a stop reaches clients without an id; each client id has its own": (
        settings(ANY), {}, {ANY: FLOOR}, True, {ANY_USER: FLOOR, EACH: FLOOR},
    ),
    "a client id with a tighter quota keeps it": (
        settings(ANY), {APP: 9}, {ANY: FLOOR, APP: 9}, True, {ANY_USER: FLOOR, EACH: FLOOR, Entity(DEFAULT, "app"): 9},
    ),
    "a stop that sets no default reaches nobody else": (settings(ANY), {}, {}, True, {}),
    "no stop, nothing": (settings(ANY), {}, {ANY: 5 * FLOOR}, False, {}),
    "listed": (settings(ANY, cover=Cover.LISTED), {}, {ANY: FLOOR}, True, {}),
    "the default user has a quota": (settings(ANY), {ANY_USER: 5}, {ANY: FLOOR, ANY_USER: 5}, True, {}),
    "the default user is configured": (settings(ANY_USER), {}, {ANY_USER: FLOOR}, True, {}),
    "some client ids only": (settings(APP), {}, {APP: FLOOR}, True, {}),
    "each client id of each user": (settings(EACH), {}, {EACH: FLOOR}, True, {ANY_USER: FLOOR}),
    "a configured default user loosens no client id": (
        settings(ANY_USER), {APP: 1000, ANY: 4000}, {ANY_USER: 5000}, False, {Entity(DEFAULT, "app"): 1000, EACH: 4000},
    ),
    "what a configured entity keeps tight needs nothing more": (
        settings(ANY_USER, Entity(DEFAULT, "app")), {APP: 9}, {ANY_USER: 50, Entity(DEFAULT, "app"): 9}, False, {},
    ),
    "a configured client id is not looser than the default one": (settings(APP), {ANY: 9}, {APP: 50}, False, {APP: 9}),
    "an excluded user without a quota is kept free": (
        settings(ANY, exclude=("carol", "dave")), {Entity("dave"): 7}, {ANY: 500_000}, False,
        {Entity("carol"): FREE_RATE},
    ),
    "one for some client ids does not do, nor for a client without an id": (
        settings(ANY, exclude=("carol", "dave")), {Entity("carol", "app"): 5, Entity("dave", DEFAULT): 5}, {ANY: FLOOR},
        True, {ANY_USER: FLOOR, EACH: FLOOR, Entity("carol"): FREE_RATE, Entity("dave"): FREE_RATE},
    ),
    "a quota that is as before frees nobody": (settings(ANY, exclude=("carol",)), {ANY: 9}, {ANY: 9}, False, {}),
}  # fmt: skip


@for_each(("given_", "rates", "planned", "is_stop", "expected"), ADDED.values(), ids=ADDED)
def test_what_is_set_besides(
    given_: QuotaSettings, rates: dict[Entity, int], planned: dict[Entity, int], is_stop: bool,
    expected: dict[Entity, int],
) -> None:  # fmt: skip
    assert find_additions(given_, rates, planned, is_stop=is_stop) == expected


SOME_USERS = st.sampled_from((None, DEFAULT, "alice", "carol", "default"))
SOME_CLIENTS = st.sampled_from((None, DEFAULT, "app", "default"))
SOME = st.builds(Entity, SOME_USERS, SOME_CLIENTS).filter(lambda e: bool(e.parts))
SOME_RATES = st.dictionaries(SOME, st.sampled_from((1000, FLOOR, 9_000_000)), max_size=8)


@given(
    st.sampled_from((ANY, EACH, ANY_USER)), st.lists(SOME, max_size=3), SOME_RATES,
    st.sets(st.sampled_from(("alice", "carol", "zoe"))), st.sampled_from((0.0, 0.5)),
)  # fmt: skip
def test_after_a_stop_each_client_has_the_floor_unless_excluded_and_none_has_more_than_before(
    catch_all: Entity, more: list[Entity], rates: dict[Entity, int], exclude: set[str], factor: float
) -> None:
    listed = tuple(dict.fromkeys((catch_all, *(e for e in more if e.user not in exclude))))
    given_ = settings(*listed, exclude=tuple(exclude))
    scaled = (*listed, *find_coverage(given_, rates).scaled)
    planned = {e: min(max(round(9_000_000 * factor), FLOOR), rates.get(e, 9_000_000)) for e in scaled}
    after = {**rates, **planned, **find_additions(given_, rates, planned, is_stop=not factor)}
    for user, client_id in product(("alice", "carol", "default", "zoe"), ("", "app", "default", "other")):
        before, deciding = (find_deciding(quotas, user, client_id) for quotas in (rates, after))
        had = FREE_RATE if before is None else rates[before]
        if user in exclude:
            assert deciding is None or after[deciding] in (had, FREE_RATE)
        elif deciding is None:
            assert factor, "escapes a stop"
        else:
            assert after[deciding] <= had
            assert factor or after[deciding] <= FLOOR


NAMES = ("default", "<default>", "CN=a,O=b", "bob smith", "a,client-id=b", "a,user=<default>", "{", "a\n", "ü,")
names = st.one_of(st.none(), st.just(DEFAULT), st.sampled_from(NAMES), st.text(min_size=1, max_size=20))
entities = st.builds(Entity, names, names).filter(lambda e: e.user is not None or e.client_id is not None)


@given(entities)
def test_each_entity_has_a_record_of_its_own(entity: Entity) -> None:
    assert recorded_entity(record_entity(entity)) == entity
    assert recorded_entity(entity) is None


@given(entities)
def test_an_entity_that_is_printed_can_be_passed_back_in_a_shell_and_in_settings(entity: Entity) -> None:
    assert parse_entity(str(entity)) == entity
    assert shlex.split(forget_command(str(entity)))[-1] == str(entity)
    if str(entity).startswith("{"):
        assert QuotaEntity(**json.loads(str(entity))).entity == entity


@for_each(
    ("entity", "text"),
    [
        (Entity(client_id=DEFAULT), "client-id=<default>"),
        (Entity(client_id="default"), "client-id=default"),
        (Entity(client_id="<default>"), '{"client_id": "<default>"}'),
        (Entity("alice", DEFAULT), "user=alice,client-id=<default>"),
        (Entity("CN=mirror,O=io.strimzi"), "user=CN=mirror,O=io.strimzi"),
        (Entity("CN=bob smith,O=Acme\\, Inc.", "a"), "user=CN=bob smith,O=Acme\\, Inc.,client-id=a"),
        (Entity("a,client-id=b", DEFAULT), '{"user": "a,client-id=b", "client_id": "default"}'),
        (Entity("a\n", "default"), '{"user": "a\\n", "client_id": {"name": "default"}}'),
    ],
)
def test_an_entity_is_printed_as_kafkas_tools_do_and_as_json_where_that_is_ambiguous(entity: Entity, text: str) -> None:
    assert str(entity) == text
    assert parse_entity(text) == entity


@for_each("text", ["", "alice", "user=", "user=a,user=b", "topic=x", "{", "{}", "[]", '{"ip": "x"}'])
def test_text_that_names_no_entity_is_refused(text: str) -> None:
    assert parse_entity(text) is None


@pytest.mark.parametrize("name", [None, "", 3])
def test_json_whose_name_is_no_text_is_refused(name: object) -> None:
    assert parse_entity(json.dumps({"user": name})) is None


# How low a quota may go at once, and who else sets it.

BASE, WAIT, WINDOW = 10_000_000, 30.0, DEFAULT_WINDOW_SECONDS


def descent(base: int, floor: int, wait: float = WAIT, window: float = WINDOW) -> list[tuple[float, int]]:
    """(second, rate) of each step of a sudden stop, each as soon as it may be."""
    now, rate, known = 0.0, base, RatesInForce()
    steps: list[tuple[float, int]] = []
    while rate > floor:
        step = known.step(now, rate, wait, window)
        assert step is not None
        lower = max(step.least, floor)
        if lower < rate:
            steps.append((now, lower))
            known, rate = known.changed(PastRate(now, rate), window), lower
        step = known.step(now, rate, wait, window)
        assert step is not None
        now += step.seconds if rate > floor else 0.0
    return steps


def test_a_stop_from_ten_megabytes_a_second_takes_five_steps_and_less_than_a_minute() -> None:
    """docs/quotas.md quotes them."""
    steps = descent(BASE, FLOOR)
    assert [round(rate / 1000) for _, rate in steps] == [3284, 1078, 354, 116, 66]
    assert steps[-1] == (4 * WINDOW, FLOOR)
    assert full_rate_seconds(BASE, FLOOR, WAIT, WINDOW) == pytest.approx(5.3, abs=0.1)
    assert full_rate_seconds(BASE, FLOOR, None, WINDOW) == 0.0


@given(
    st.integers(10**5, 10**9),
    st.integers(1000, 10**5),
    st.sampled_from([12.0, 20.0, 30.0, 120.0]),
    st.sampled_from([2.0, 11.0, 61.0, 600.0]),
)
def test_no_step_tells_a_producer_that_wrote_all_it_might_to_wait_longer(
    base: int, floor: int, wait: float, window: float
) -> None:
    steps = descent(base, floor, wait, window)
    rates = [(float("-inf"), base), *steps]
    for (began, before), (at, rate) in pairwise(rates):
        assert at - began >= window
        assert before * window / rate - window <= wait + 1e-6
    assert rates[-1][1] == min(floor, base)


@given(st.lists(st.tuples(st.floats(0.0, 15.0), st.integers(1, 10**7)), max_size=20), st.integers(1, 10**7))
def test_what_was_in_force_within_the_window_counts(changes: list[tuple[float, int]], present: int) -> None:
    now, known, history = 0.0, RatesInForce(), list[tuple[float, int]]()
    for pause, rate in changes:
        now += pause
        known = known.changed(PastRate(now, rate), WINDOW)
        history.append((now, rate))
        step = known.step(now, present, WAIT, WINDOW)
        highest = max([present, *(r for until, r in history if until > now - WINDOW)])
        assert step is not None
        assert step.least == pytest.approx(highest * WINDOW / (0.75 * WAIT + WINDOW), abs=1)
        assert len(known.past) <= len(history)


def test_where_nothing_is_known_to_have_been_let_through_there_is_no_step() -> None:
    assert RatesInForce().step(1.0, None, WAIT, WINDOW) is None
    assert RatesInForce().step(0.0, 3350, WAIT, WINDOW) == QuotaStep(1100, float("inf"))


@pytest.mark.parametrize(("seconds", "least"), [(0.5, 66_296), (5.0, 469_281), (60.0, 1_006_594)])
def test_a_rate_that_was_put_back_for_a_moment_counts_for_that_moment(seconds: float, least: int) -> None:
    known = RatesInForce().changed(PastRate(0.0, 3_000_000, seconds), WINDOW)
    assert known.step(1.0, FLOOR, WAIT, WINDOW) == QuotaStep(least, WINDOW - 1.0)
    assert known.step(WINDOW + 1.0, FLOOR, WAIT, WINDOW) == QuotaStep(21_520, float("inf"))


def contest(*at: float) -> Contest:
    return Contest(at, 3_000_000)


def test_three_times_the_same_value_are_a_contest_and_another_value_begins_again() -> None:
    found: Contest | None = None
    for at in (0.0, 24.0, 48.0):
        assert found is None or not found.is_contested
        found = note_put_back(found, at, 3_000_000)
    assert found is not None
    assert (found.is_contested, found.period_seconds) == (True, 24.0)
    assert note_put_back(found, 50.0, None) == Contest((50.0,), None)


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [(contest(0.0), 800.0, False), (contest(0.0), 901.0, True), (contest(0.0, 24.0), 90.0, False),
     (contest(0.0, 24.0), 100.0, True)],
)  # fmt: skip
def test_when_it_is_over(known: Contest, now: float, expected: bool) -> None:
    assert known.is_over(now) is expected


@for_each(
    ("found", "base", "factors", "expected"),
    [
        pytest.param(FLOOR, None, (), True, id="the floor"),
        pytest.param(5_000_000, BASE, (0.5,), True, id="the base times a known factor"),
        pytest.param(5_000_000, BASE, (0.4,), False, id="times no known factor"),
        pytest.param(BASE, BASE, (1.0,), False, id="the base itself"),
        pytest.param(50_000, None, (0.5,), False, id="no base"),
        pytest.param(None, BASE, (0.5,), False, id="no quota"),
    ],
)
def test_which_quotas_may_be_ours(
    found: int | None, base: int | None, factors: tuple[float, ...], expected: bool
) -> None:
    assert may_be_ours(found, base, FLOOR, factors) is expected


# The settings: every mistake is found.

ANY_CLIENT = {"client_id": "default", "base": "10MB"}


@pytest.mark.parametrize(("given", "seconds"), [("none", None), (None, None), ("45s", 45.0)])
def test_the_longest_wait_may_be_none(given: str | None, seconds: float | None) -> None:
    wait = QuotaSettings.model_validate({"entities": [ANY_CLIENT], "max_told_wait": given}).max_told_wait
    assert (wait and wait.total_seconds()) == seconds


@for_each(
    ("block", "said"),
    [
        ({"entities": []}, "needs at least one"),
        ({"entities": [{}]}, "needs a user, a client_id or both"),
        ({"entities": [{"user": ""}]}, "at least 1 character"),
        ({"entities": [{"user": {"name": ""}}]}, "at least 1 character"),
        ({"entities": [{"user": 5}]}, "valid string"),
        ({"entities": [{"client": "x"}]}, "Unexpected keyword"),
        ({"entities": [{"user": "a", "base": 0}]}, "greater than 0"),
        ({"entities": [{"user": "a", "base": "64kB"}]}, "user=a (64000) is below floor_bytes_per_second (65536)"),
        ({"entities": [ANY_CLIENT, ANY_CLIENT]}, "client-id=<default> stands there twice"),
        ({"entities": [{"user": "bob", "client_id": "x"}], "exclude": ["bob"]}, "names user bob, which is excluded"),
        ({"entities": [ANY_CLIENT], "exclude": ["default"]}, "name users one by one"),
        ({"entities": [ANY_CLIENT], "floor_bytes_per_second": 0}, "greater than 0"),
        ({"entities": [ANY_CLIENT], "flor": 1}, "Extra inputs"),
    ],
)
def test_a_mistake_is_named(block: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        QuotaSettings.model_validate(block)
    assert said in str(error.value)


NAMED_DEFAULT = {"client_id": {"name": "default"}, "user": "default"}


def test_the_bare_word_is_the_default_entity_and_a_name_is_the_one_that_is_called_so() -> None:
    block = {
        "entities": [ANY_CLIENT, NAMED_DEFAULT],
        "exclude": ["User:alice", {"name": "default"}, {"name": "User:x"}],
    }
    settings = QuotaSettings.model_validate(block)
    assert [spec.entity for spec in settings.entities] == [Entity(None, DEFAULT), Entity(DEFAULT, "default")]
    assert settings.exclude == ("alice", "default", "User:x")
    written = settings.model_dump(mode="json")
    assert written["entities"][1] == {**NAMED_DEFAULT, "base": None}
    assert QuotaSettings.model_validate(written) == settings
