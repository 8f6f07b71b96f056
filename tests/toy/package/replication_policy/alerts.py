"""What the replication policy warns of; silence ends no alert, for the last good reading goes on counting here."""

from collections.abc import Iterator

from policies.alerts import Condition
from policies.decisions import Severity

from .facts import ReplicationFacts

UNDER_REPLICATED = "partitions-under-replicated"


def conditions(cluster: str, facts: ReplicationFacts) -> Iterator[Condition]:
    """Everything that is the case now."""
    if facts.reading is not None and facts.is_over:
        yield Condition(
            UNDER_REPLICATED,
            cluster,
            Severity.WARNING,
            "under_replicated",
            f"{facts.reading.under_replicated} partitions of {cluster} are under-replicated",
            {"cluster": cluster},
            (facts.reading.id,),
        )
