"""Which quota decides for which clients, as Kafka documents its order of precedence."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.quota_coverage import Coverage, find_coverage, takes_precedence
from policies.throttle.quota_originals import parse_entity, record_entity, recorded_entity
from policies.throttle.quota_settings import DEFAULT, Cover, Entity, QuotaEntity, QuotaSettings

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


names = st.one_of(st.none(), st.just(DEFAULT), st.text(min_size=1, max_size=20))
entities = st.builds(Entity, names, names).filter(lambda e: e.user is not None or e.client_id is not None)


@given(entities)
def test_each_entity_has_a_record_of_its_own(entity: Entity) -> None:
    assert recorded_entity(record_entity(entity)) == entity
    assert recorded_entity(entity) is None


@pytest.mark.parametrize("text", ["", "alice", "user=", "user=a,user=b", "topic=x", "user=a,"])
def test_text_that_names_no_entity_is_refused(text: str) -> None:
    assert parse_entity(text) is None
