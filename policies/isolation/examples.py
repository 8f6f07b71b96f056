"""The example scenario of isolation: an unassigned bookie has joined, and another bookie is gone."""

from collections.abc import Sequence
from datetime import datetime

from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
    RackInfo,
)
from policies.examples import ExampleReport, Examples, make_readings, minutes
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.readings import BookieQuarantined, NamespacePromise, QuarantineOutcome
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.observations import Outcome, Reading

_CLUSTER = "messaging"


def examples() -> Examples:
    """The scenario for the references."""
    quarantined = BookieQuarantined(
        cluster=_CLUSTER,
        bookie="bk11:3181",
        group=QUARANTINE_GROUP,
        decision_id="0d9a7cbb-5d5c-5f35-9f0c-6f4b1f6f2a51",
        sequence=7,
        outcome=QuarantineOutcome.DONE,
        leak_window_seconds=0.412,
        quarantined_at=minutes(3),
        attempt=1,
    )
    return Examples(
        settings=IsolationSettings.model_validate({"grace": "0s", "quarantine": "on"}),
        batches=(make_readings("headgate/collector/zookeeper", *_readings()),),
        reports=(ExampleReport("quarantine-1", minutes(3), quarantined),),
        block={"clusters": {"messaging": {"quarantine": "on", "max_quarantined": 5}}},
        cluster={"pulsar_bookies": {"bookie_url": "http://bookies.example.org:8000"}},
    )


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    registered = [("bk1:3181", "0x1000a", 14, 0), ("bk3:3181", "0x1000c", 18, 0), ("bk11:3181", "0x1001f", 97, 2)]
    bookies = Bookies(
        cluster=_CLUSTER,
        outcome=Outcome.OK,
        writable=tuple(
            BookieRegistration(bookie=bookie, session=session, czxid=czxid, registered_at=minutes(minute))
            for bookie, session, czxid, minute in registered
        ),
        known=("bk1:3181", "bk11:3181", "bk2:3181", "bk3:3181"),
    )
    members = {"default": ("bk1:3181", "bk2:3181"), "shared": ("bk3:3181",)}
    groups = {group: {b: RackInfo(rack="/r1", hostname=b) for b in bookies_} for group, bookies_ in members.items()}
    affinity = {
        "acme/orders": NamespaceAffinity(primary=("default",), ensemble_size=2, write_quorum=2, ack_quorum=2),
        "acme/events": NamespaceAffinity(primary=("shared",), ensemble_size=1, write_quorum=1, ack_quorum=1),
    }
    # More namespaces than are published without a summary.
    affinity |= {f"acme/team-{number:02}": NamespaceAffinity(primary=("shared",)) for number in range(10)}
    promise = NamespacePromise(
        cluster=_CLUSTER, namespace="acme/orders", promise=RuleSet.STRICT, actor="ada@example.org", reason="contract 7"
    )
    return (
        ("bookies-3", minutes(3), bookies),
        ("racks-3", minutes(3), BookieRacks(cluster=_CLUSTER, outcome=Outcome.OK, groups=groups)),
        ("affinity-3", minutes(3), BookieAffinity(cluster=_CLUSTER, outcome=Outcome.OK, namespaces=affinity)),
        ("promise-3", minutes(3), promise),
    )
