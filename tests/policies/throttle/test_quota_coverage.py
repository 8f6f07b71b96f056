"""Which quota decides for which clients, as Kafka documents its order of precedence."""

import json
import shlex
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.quotas import (
    FREE_RATE,
    Coverage,
    find_additions,
    find_coverage,
    find_deciding,
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


RATES = {ANY: 1, Entity("alice"): 50_000_000, Entity("bob"): 10_000, Entity("carol"): 50_000_000}


@pytest.mark.parametrize(
    ("given_settings", "expected"),
    [
        pytest.param(settings(ANY), Coverage((Entity("alice"), Entity("bob"), Entity("carol"))), id="all"),
        pytest.param(settings(ANY, exclude=("carol",)), Coverage((Entity("alice"), Entity("bob"))), id="excluded"),
        pytest.param(
            settings(ANY, cover=Cover.LISTED), Coverage((), (Entity("alice"), Entity("carol"))),
            id="listed: what is at the floor or below does not escape",
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


FLOOR = 65_536
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
