"""The scenario behind the examples of replication: three partitions lose a replica."""

from policies.examples import Examples, make_readings, minutes
from policies.observations import Outcome

from .readings import UnderReplicated
from .settings import ReplicationSettings


def examples() -> Examples:
    """What the references show of it."""
    reading = UnderReplicated(cluster="payments", outcome=Outcome.OK, under_replicated=3, partitions=120)
    return Examples(
        settings=ReplicationSettings(),
        batches=(make_readings("replication-policy/collector", ("replication-1", minutes(1), reading)),),
        cluster={"replication": {"poll_interval": "30s"}},
    )
