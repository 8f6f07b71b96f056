"""Which quota decides for which clients, as Kafka documents its order of precedence."""

import json
import shlex
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.quota_coverage import Coverage, find_coverage, takes_precedence
from policies.throttle.quota_entities import DEFAULT, Entity, forget_command, parse_entity
from policies.throttle.quota_originals import record_entity, recorded_entity
from policies.throttle.quota_settings import Cover, QuotaEntity, QuotaSettings

BY_PRECEDENCE = [
    Entity("alice", "app"), Entity("alice", DEFAULT), Entity("alice"), Entity(DEFAULT, "app"), Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT), Entity(None, "app"), Entity(None, DEFAULT),
]  # fmt: skip
ANY = BY_PRECEDENCE[-1]


def settings(*entities: Entity, cover: Cover = Cover.ALL, exclude: tuple[str, ...] = ()) -> QuotaSettings:
    given_ = tuple(QuotaEntity(user=each.user, client_id=each.client_id) for each in entities)
    return QuotaSettings(entities=given_, cover=cover, exclude=exclude)


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


NAMES = (
    "default",
    "<default>",
    "CN=mirror,O=io.strimzi",
    "bob smith",
    "a,client-id=b",
    "a,user=<default>",
    "{",
    "a\n",
    "ü,",
)
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text", ["", "alice", "user=", "user=a,user=b", "topic=x", "{", "{}", "[]", '{"user": null}', '{"ip": "x"}']
)
def test_text_that_names_no_entity_is_refused(text: str) -> None:
    assert parse_entity(text) is None
