"""A cluster with MetalLB moves to kube-nftlb, its addresses too, while a client connects to one of them."""

import time
from collections.abc import Iterator
from functools import partial

import pytest

from kube_nftlb import names
from lab.metallb import plan
from lab.places import CLIENT
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.segment import POOL, cut, holder, note, served

# MetalLB is built if it is missing.
pytestmark = pytest.mark.timeout(900)

_ON = {"KUBE_NFTLB_ADDRESSES": "on"}
_ALONE_S = 4
"""For new connections once kube-nftlb is alone."""
_OF_METALLB = (
    ("IPAddressPool", {"addresses": POOL["spec"]["ranges"][:1]}),
    ("L2Advertisement", {"ipAddressPools": ["segment"], "interfaces": ["eth0"]}),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with kube-proxy and MetalLB, an operator, and agents and responders that wait to be started."""
    settings = {"operator": {**engine.OPERATOR, **_ON, "KUBE_NFTLB_ADDRESSES_WITHOUT_CLASS": "on"}, "agent": _ON}
    proxy = "kube-proxy-nftables+metallb+kube-nftlb"
    with running("from-metallb", nodes=3, proxy=proxy, settings=settings) as cluster:
        yield cluster


def test_addresses_of_metallb_move_and_no_new_connection_fails(cluster: Cluster) -> None:
    for kind, spec in _OF_METALLB:
        where = {"name": "segment", "namespace": plan.NAMESPACE}
        cluster.apply({"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": where, "spec": spec})
    cluster.run("web", 4, "default")
    cluster.apply(service("web", "default", type="LoadBalancer"))
    eventually(lambda: address(cluster) != "", "MetalLB has assigned an address")
    ip = address(cluster)
    # MetalLB announces it before. Who connects then is not translated, nor is a later connection from the same port.
    for node in cluster.nodes:
        eventually(partial(has_rules, cluster, node, ip), f"kube-proxy on {node} serves {ip}")
    served(cluster, ip)
    with cluster.hammer(CLIENT, ip) as met:
        for node in cluster.nodes:
            cluster.lab.stop("kube-proxy", node)
            for component in ("nftlb", "responder", "agent"):
                cluster.lab.start(component, node)
            cluster.wait("nftlbnode", node, "KubeProxyGone", seconds=90)
        cluster.lab.stop(plan.CONTROLLER)
        cluster.apply(POOL)
        cluster.wait("service", "web", names.ADDRESS_CONDITION)
        eventually(lambda: announced_by(cluster) == [holder(cluster, ip)], "it is where MetalLB's speaker announces it")
        began = time.monotonic()
        cluster.lab.stop(plan.SPEAKER)
        first = holder(cluster, ip)
        eventually(lambda: announced_by(cluster) == [first], f"{first} announces {ip}")
        took_s = time.monotonic() - began
        time.sleep(_ALONE_S)
    note(met, "MetalLB and kube-proxy are replaced", scenario="replaced")
    moved = cut(met)
    print(f"{met['attempts']} connections, {moved} cut, announced after {took_s:.1f} s, gap {met['longest_gap_ms']} ms")
    assert address(cluster) == ip
    assert moved <= 6, "those of the two threads that are open as it moves: to other speakers, too, as each ends"
    assert met["failed"] == {}
    # Also by a client that has never asked for it.
    cluster.lab.exec(CLIENT, "ip", "neigh", "flush", "all")
    served(cluster, ip)


def address(cluster: Cluster) -> str:
    """The address that the Service has; empty without one."""
    ingress = cluster.get("service", "web")["status"]["loadBalancer"].get("ingress", [])
    return str(ingress[0]["ip"]) if ingress else ""


def has_rules(cluster: Cluster, node: str, ip: str) -> bool:
    return ip in cluster.nft(node, "list", "table", "ip", "kube-proxy")


def announced_by(cluster: Cluster) -> list[str]:
    status = (cluster.farm("web--http", "default") or {}).get("status", {})
    return [str(each["announcedBy"]) for each in status.get("addresses", [])]
