"""NftlbPolicies while programs restart: who is kept out stays out."""

import pytest

from tests.builders.manifests import farm, policy
from tests.functional.clients import STEADY, Sources, gets_in, give, programmed, serve
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique

pytestmark = pytest.mark.engines


def test_a_restart_lets_nobody_in(cluster: Cluster, namespace: str) -> None:
    sources, vip = Sources(cluster, namespace, "ipv4"), unique()
    near, far = sources.pod, sources.far_pod
    give(cluster, policy("list", namespace, "deny", sources.cidrs(far)))
    serve(cluster, namespace, vip=vip, policies=["list"])
    with cluster.hammer(far, vip, 80, *STEADY) as denied:
        for component in ("agent", "nftlb"):
            cluster.lab.restart(component)
            eventually(lambda: gets_in(cluster, near, vip), "who may connect does")
        # The farm is changed, moved and deleted while no agent looks.
        cluster.lab.stop("agent")
        elsewhere = [{"ip": unique(), "ports": "80"}]
        cluster.apply(farm("web", namespace, addresses=elsewhere, backends=[], policies=["list"]))
        cluster.lab.start("agent")
        programmed(cluster, "web", namespace)
        serve(cluster, namespace, vip=vip, policies=["list"])
        assert gets_in(cluster, near, vip)
        cluster.lab.stop("agent")
        cluster.delete("farm", "web", namespace)
        cluster.delete("nftlbpolicy", "list", namespace)
        cluster.lab.start("agent")
        eventually(lambda: cluster.has_forgotten(f"{namespace}."), "the farm is gone")
    assert denied["attempts"] > 100
    assert denied["answers"] == {}
