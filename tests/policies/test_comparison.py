"""A comparison decides, and words itself."""

import pytest

from policies.comparison import Comparison, Relation


@pytest.mark.parametrize(
    ("relation", "below", "equal", "above"),
    [
        (Relation.LESS, True, False, False),
        (Relation.AT_MOST, True, True, False),
        (Relation.AT_LEAST, False, True, True),
        (Relation.MORE, False, False, True),
    ],
)
@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_the_threshold_itself_belongs_to_the_relations_that_name_it(
    relation: Relation, tolerance: float, *, below: bool, equal: bool, above: bool
) -> None:
    found = [Comparison(5 + difference, relation, 5, tolerance).holds for difference in (-0.2, 0, 0.2)]
    assert found == [below, equal, above]


@pytest.mark.parametrize(
    ("relation", "amount", "count"),
    [
        (Relation.LESS, "less than 5", "fewer than 5"),
        (Relation.AT_MOST, "5 or less", "5 or fewer"),
        (Relation.AT_LEAST, "5 or more", "5 or more"),
        (Relation.MORE, "more than 5", "more than 5"),
    ],
)
def test_the_required_side_is_put_into_words(relation: Relation, amount: str, count: str) -> None:
    comparison = Comparison(3, relation, 5)
    assert comparison.describe("{:g}".format) == amount
    assert comparison.describe("{:g}".format, is_count=True) == count
