"""Formats the answer of `headgate placement` as tables and sentences."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from policies.isolation.decisions import PlacementVerdict, Tier
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.membership import BookieMembership
from policies.isolation.messages import explain_placement
from policies.isolation.placement import Exclusion, classify
from policies.isolation.settings import IsolationSettings

_COLOURS: Mapping[PlacementVerdict, str] = {
    PlacementVerdict.ISOLATED: "green",
    PlacementVerdict.UNCONSTRAINED: "dim",
    PlacementVerdict.ASKED_FOR: "yellow",
    PlacementVerdict.SPILLS_TO_SECONDARY: "yellow",
    PlacementVerdict.LEAKS: "bold red",
    PlacementVerdict.INFEASIBLE: "bold red",
}
_WHY_OUT: Mapping[Exclusion, str] = {
    Exclusion.OTHER_GROUP: "in a group that is not the namespace's",
    Exclusion.QUARANTINED: "in quarantine",
    Exclusion.SECONDARY_NOT_NEEDED: "of a secondary group; the primary ones suffice",
    Exclusion.UNASSIGNED_NOT_NEEDED: "in no group; the namespace's own suffice",
    Exclusion.UNASSIGNED_FORBIDDEN: "in no group, and the rules are strict",
    Exclusion.DEAD_SECONDARY_COUNTED: "in no group; brokers count dead members of the secondary groups",
    Exclusion.NOT_WRITABLE: "read-only or not registered",
}
_NEXT: Mapping[Tier, str] = {
    Tier.PRIMARY: "the primary groups do not suffice",
    Tier.SECONDARY: "the secondary groups do not suffice",
    Tier.UNASSIGNED: "it cannot place its data",
    Tier.NONE: "",
}


def overview(cluster: str, judged: Sequence[PlacementJudgement]) -> Table:
    """One line a namespace, the worst first."""
    table = Table(title=f"Placement of {cluster}", title_justify="left")
    for name in ("namespace", "verdict", "primary", "secondary", "ensemble", "candidates", "headroom", "leak"):
        table.add_column(name, justify="right" if name in ("ensemble", "candidates", "headroom") else "left")
    rows = sorted(((j, n) for j in judged for n in j.namespaces), key=lambda row: (_badness(row[0]), row[1]))
    for j, namespace in rows:
        table.add_row(
            namespace,
            Text(j.verdict.value, _COLOURS[j.verdict]),
            ", ".join(sorted(j.affinity.primary)),
            ", ".join(sorted(j.affinity.secondary)),
            str(j.ensemble_size),
            str(j.placed.count),
            str(j.placed.headroom),
            ", ".join(j.leak),
        )
    return table


def _badness(judged: PlacementJudgement) -> int:
    order = list(_COLOURS)
    return -order.index(judged.verdict)


def bookie_table(judged: PlacementJudgement, membership: BookieMembership, settings: IsolationSettings) -> Table:
    """One line a bookie: in or out, and why."""
    table = Table("bookie", "group", "in", "why", title=_title(judged), title_justify="left")
    affinity = judged.affinity or None
    standing = classify(judged.rules, membership, affinity, judged.ensemble_size, settings.unaffine)
    order: list[Tier | Exclusion] = [*Tier, *Exclusion]
    for bookie, why in sorted(standing.items(), key=lambda row: (order.index(row[1]), row[0])):
        groups = ", ".join(sorted(g for g, members in (membership.groups or {}).items() if bookie in members)) or "-"
        if isinstance(why, Exclusion):
            table.add_row(bookie, groups, Text("out", "dim"), Text(_WHY_OUT[why], "dim"))
        elif bookie in judged.leak:
            table.add_row(
                bookie, groups, Text("LEAK", "bold red"), f"{why.value}; the promise ({judged.promise}) forbids it"
            )
        else:
            table.add_row(bookie, groups, Text("in", "green"), why.value)
    return table


def _title(judged: PlacementJudgement) -> str:
    return f"{judged.namespaces[0]} by the rules `{judged.rules}`, ensemble of {judged.ensemble_size}"


def summary(judged: Sequence[PlacementJudgement], membership: BookieMembership) -> Iterable[Text]:
    """What a person must know, in a line or two."""
    if len(judged) != 1 or len(judged[0].namespaces) != 1:
        namespaces = sum(len(j.namespaces) for j in judged)
        loose = sorted(membership.writable - membership.grouped())
        yield Text(f"{namespaces} namespaces with affinity, {len(membership.writable)} writable bookies")
        if loose:
            yield Text(f"in no group: {', '.join(loose)}", "yellow")
        return
    j = judged[0]
    yield Text(f"{j.verdict.value}: {j.namespaces[0]} {explain_placement(j)}.", _COLOURS[j.verdict])
    if j.placed.headroom:
        losses = "one more loss" if j.placed.headroom == 1 else f"{j.placed.headroom} more losses"
        yield Text(f"headroom: after {losses} {_NEXT[j.placed.tier]}")
