"""Which cluster brokers write to, and how names become parts of paths."""

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from connectors.switching.registry_content import RegistryView
from connectors.zookeeper.json_znodes import quote_name
from policies.switching.readings import RegisteredCluster, WrittenDirective
from policies.switching.state import ClusterStatus, Directive, RegistryEntry, SwitchingState
from tests.cases import for_each


def registered(name: str, status: ClusterStatus) -> RegisteredCluster:
    return RegisteredCluster(name=name, uri=f"zk://{name}", instance_id=f"i-{name}", root="/ledgers", status=status)


def view(directive: tuple[int, str] | None, committed: int, **statuses: str) -> RegistryView:
    written = None if directive is None else WrittenDirective(epoch=directive[0], target=directive[1])
    clusters = tuple(registered(name, ClusterStatus(status)) for name, status in sorted(statuses.items()))
    return RegistryView(clusters, None, written, committed)


@for_each(
    ("seen", "active"),
    [
        (view(None, 0), None),
        (view(None, 0, old="active", new="standby"), "old"),
        (view((1, "new"), 0, old="active", new="standby"), "new"),
        (view((2, "old"), 0, old="active", new="standby"), "old"),
        (view((1, "new"), 0, old="deprecated", new="standby"), "new"),
        (view((1, "new"), 1, old="deprecated", new="active"), "new"),
        (view((1, "other"), 1, old="deprecated", new="active"), "new"),
        (view((2, "old"), 1, old="deprecated", new="active"), "old"),
    ],
    ids=[
        "nothing registered", "no switch yet", "hold", "switch rejected", "between the two statuses", "committed",
        "a committed directive no longer counts", "back again",
    ],
)  # fmt: skip
def test_brokers_write_to_the_directives_target_until_it_is_committed(seen: RegistryView, active: str | None) -> None:
    assert seen.active() == active


NAMES = st.sampled_from(["a", "b", "c"])


@given(
    st.none() | st.tuples(st.integers(0, 3), NAMES),
    st.integers(0, 3),
    st.dictionaries(NAMES, st.sampled_from(ClusterStatus)),
)
def test_the_policy_and_the_brokers_agree(
    directive: tuple[int, str] | None, committed: int, statuses: dict[str, ClusterStatus]
) -> None:
    state = SwitchingState(
        entries=tuple(
            RegistryEntry(name, f"zk://{name}", "i", "/ledgers", status) for name, status in sorted(statuses.items())
        ),
        directive=None if directive is None else Directive(*directive),
        committed_epoch=committed,
    )
    assert view(directive, committed, **statuses).active() == state.active()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_is_one_part_of_a_path_and_comes_back(name: str) -> None:
    part = quote_name(name)
    assert unquote(part) == name
    assert part not in (".", "..")
    assert "/" not in part
