"""Keeps what a service owns through ephemeral ZooKeeper nodes when its session is lost; for any user of kazoo.

    client = KazooClient("zk1:2181,zk2:2181")
    with OwnershipAgent(client, "b1:8080", MyCallbacks()) as agent:
        client.start()
        agent.own("/namespace/tenant/orders/0x00000000_0xffffffff", b'{"brokerId": "b1:8080"}')
        while agent.serving("/namespace/tenant/orders/0x00000000_0xffffffff"):
            ...

See docs/ownership-agent.md for the guarantees, and deploy/examples/bundle_service.py for a service that runs.
"""

from connectors.ownership.agent import OwnershipAgent
from connectors.ownership.callbacks import NoSessionError, OwnedByOtherError, OwnershipCallbacks, OwnershipError
from connectors.ownership.decisions import MemberDecisions
from connectors.ownership.loop_strategy import DecisionSource, LoopStrategy
from connectors.ownership.strategy import LocalStrategy, RecoveryStrategy

__all__ = [
    "DecisionSource",
    "LocalStrategy",
    "LoopStrategy",
    "MemberDecisions",
    "NoSessionError",
    "OwnedByOtherError",
    "OwnershipAgent",
    "OwnershipCallbacks",
    "OwnershipError",
    "RecoveryStrategy",
]
