"""Keeps a service's ownership of ephemeral ZooKeeper nodes through the loss of its session; for any user of kazoo.

    client = KazooClient("zk1:2181,zk2:2181")
    with OwnershipAgent(client, "b1:8080", MyCallbacks()) as agent:
        client.start()
        agent.acquire("/namespace/tenant/orders/0x00000000_0xffffffff", b'{"brokerId": "b1:8080"}')
        while agent.serving("/namespace/tenant/orders/0x00000000_0xffffffff"):
            ...

See docs/ownership-agent.md for the guarantees, and deploy/examples/bundle_service.py for a complete service.
"""

from connectors.sessions.agent.agent import OwnershipAgent
from connectors.sessions.agent.callbacks import NoSessionError, OwnedByOtherError, OwnershipCallbacks, OwnershipError
from connectors.sessions.agent.decisions import MemberDecisions
from connectors.sessions.agent.loop_strategy import DecisionSource, LoopStrategy
from connectors.sessions.agent.strategy import LocalStrategy, RecoveryStrategy

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
