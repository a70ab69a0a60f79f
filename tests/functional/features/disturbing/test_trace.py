"""``kube-nftlb trace`` on a node whose rules are incomplete, and the end of a trace to which nobody listens."""

from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front
from tests.functional.features.test_trace import Tracer, ending, front, tracer

__all__ = ["front", "tracer"]


def test_rules_that_nftlb_has_not_made_yet(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply()
    cluster.lab.stop("agent", tracer.node)
    cluster.lab.stop("nftlb", tracer.node)
    try:
        cluster.nft(tracer.node, "delete table ip nftlb")
        traced = tracer.ask(front.ip, send=True)
    finally:
        cluster.lab.start("nftlb", tracer.node)
        cluster.lab.start("agent", tracer.node)
    assert ending(traced) == ("Dropped", "RulesIncomplete")
    eventually(lambda: ending(tracer.ask(front.ip, send=True))[0] == "Served", "it is served again")
