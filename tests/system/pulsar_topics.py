"""Writing into topics of a real Pulsar over HTTP, and looking where the data went; no Pulsar client is needed."""

import re
from typing import Any

import httpx

from tests.system.pulsar import CLUSTER, PulsarCluster

_ENSEMBLES = re.compile(r"\bensembles=\{(?P<ensembles>[^}]*)\}")
_ENSEMBLE = re.compile(r"\[(?P<bookies>[^\]]*)\]")


def call(cluster: PulsarCluster, method: str, path: str, json: Any = None) -> httpx.Response:
    """Call the first broker's REST; a refusal fails the test."""
    # Which broker owns a bundle is for the load manager to say: one that does not own it names the one that does (307).
    answer = httpx.request(method, f"{cluster.admin_url}{path}", json=json, timeout=30, follow_redirects=True)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
    return answer


def owner_of(admin_url: str, topic: str, url: str = "brokerUrl") -> str:
    """The address of the broker that serves `tenant/namespace/topic`; empty while none does."""
    try:
        answer = httpx.get(f"{admin_url}/lookup/v2/topic/persistent/{topic}", timeout=30, follow_redirects=True)
    except httpx.RequestError:
        return ""
    return str(answer.json()[url]) if answer.is_success else ""


def create_namespace(cluster: PulsarCluster, namespace: str, *, primary: str = "", secondary: str = "") -> None:
    """Create `tenant/namespace` with one bundle, and its tenant, with groups of bookies (comma separated) if given."""
    tenant = namespace.split("/")[0]
    if tenant not in call(cluster, "GET", "/admin/v2/tenants").json():
        allowed = {"allowedClusters": [CLUSTER], "adminRoles": []}
        call(cluster, "PUT", f"/admin/v2/tenants/{tenant}", allowed)
    call(cluster, "PUT", f"/admin/v2/namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    if primary or secondary:
        set_affinity(cluster, namespace, primary=primary, secondary=secondary)


def set_affinity(cluster: PulsarCluster, namespace: str, *, primary: str, secondary: str = "") -> None:
    """Set the groups of bookies (comma separated) of a namespace."""
    groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
    call(cluster, "POST", f"/admin/v2/namespaces/{namespace}/persistence/bookieAffinity", groups)


def isolate_brokers(cluster: PulsarCluster, policy: str, namespaces: str, *, primary: str, secondary: str) -> None:
    """Set which brokers serve which namespaces, both as regular expressions."""
    failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}}
    brokers = {"primary": [primary], "secondary": [secondary], "auto_failover_policy": failover}
    path = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies/{policy}"
    call(cluster, "POST", path, {"namespaces": [namespaces], **brokers})


def set_persistence(cluster: PulsarCluster, namespace: str, *, ensemble: int, write: int, ack: int) -> None:
    """Set ensemble size, write quorum and ack quorum of a namespace."""
    sizes = {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
    call(
        cluster, "POST", f"/admin/v2/namespaces/{namespace}/persistence", {**sizes, "managedLedgerMaxMarkDeleteRate": 1}
    )


def produce(cluster: PulsarCluster, topic: str, count: int) -> None:
    """Append messages to `tenant/namespace/topic`, which is made if need be; return when all are stored.

    Through the broker's own producer over HTTP (`POST /topics/persistent/…`): it takes topics that exist and are
    loaded. By default, five messages fill a ledger.
    """
    if f"persistent://{topic}" not in call(cluster, "GET", f"/admin/v2/persistent/{topic.rpartition('/')[0]}").json():
        call(cluster, "PUT", f"/admin/v2/persistent/{topic}")
    call(cluster, "GET", f"/lookup/v2/topic/persistent/{topic}")
    messages = [{"payload": f"message {number}"} for number in range(count)]
    body = {"producerName": "headgate-test", "messages": messages}
    results = call(cluster, "POST", f"/topics/persistent/{topic}", body).json()["messagePublishResults"]
    assert [result.get("errorCode") for result in results] == [0] * count, results


def ledgers(cluster: PulsarCluster, topic: str) -> dict[int, frozenset[str]]:
    """The bookies that hold each ledger of a topic, over all changes of its ensemble, by ledger id.

    From `internalStats?metadata=true`, where the broker prints BookKeeper's metadata of each ledger as text
    (`… ensembles={0=[bk1:3181, bk2:3181]}, …`); the ledgers' own znodes hold the same in protobuf.
    """
    stats = call(cluster, "GET", f"/admin/v2/persistent/{topic}/internalStats?metadata=true").json()
    return {ledger["ledgerId"]: _bookies(ledger["metadata"]) for ledger in stats["ledgers"]}


def _bookies(metadata: str) -> frozenset[str]:
    match = _ENSEMBLES.search(metadata)
    assert match is not None, metadata
    ensembles = _ENSEMBLE.findall(match["ensembles"])
    return frozenset(bookie for ensemble in ensembles for bookie in ensemble.split(", "))
