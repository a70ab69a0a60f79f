"""Every shape that a farm's part of the agent's own table can have is taken by nft, and is in the kernel."""

import itertools

from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table.base import environment
from tests.builders import farm, raw_backend
from tests.contract.test_own_table import Node, node  # noqa: F401 - a fixture
from tests.views import view

ADDRESSES = {
    "ipv4": [
        {"type": "ClusterIP", "ip": "10.96.0.10", "ports": "80"},
        {"type": "ExternalIP", "ip": "203.0.113.9", "ports": "80-82"},
        {"type": "LoadBalancer", "ip": "198.51.100.7", "ports": "80", "sourceRanges": ["10.0.0.0/8", "192.0.2.1/32"]},
        {"type": "NodePort", "ip": "", "ports": "30080"},
    ],
    "ipv6": [
        {"type": "ClusterIP", "ip": "fd00:96::a", "ports": "80"},
        {"type": "ExternalIP", "ip": "fd00:9::9", "ports": "80"},
        {"type": "LoadBalancer", "ip": "fd00:9::7", "ports": "80", "sourceRanges": ["fd00::/16"]},
        {"type": "NodePort", "ip": "", "ports": "30080"},
    ],
}
PODS = {"ipv4": ("10.244.1.2", "10.244.2.2"), "ipv6": ("fd00:244:1::2", "fd00:244:2::2")}
HERE = NodeFacts(
    "here", "a", {"ipv4": ("172.31.0.11",), "ipv6": ("fd00:31::b",)}, {"ipv4": ("10.244.1.0/24",), "ipv6": ()}
)


async def test_all_shapes(node: Node) -> None:  # noqa: F811 - the fixture
    await node.give({"environment": environment(HERE.pod_cidrs, {"ipv4": ["10.96.0.0/16"], "ipv6": ["fd00:96::/112"]})})
    for family, policy, mode, protocol, persistence, where in itertools.product(
        ("ipv4", "ipv6"), ("Cluster", "Local"), ("snat", "dnat"), ("TCP", "UDP", "SCTP"), ("none", "srcip"), range(4)
    ):
        nodes = [name for bit, name in ((1, "here"), (2, "there")) if where & bit]
        wanted = farm(
            family=family,
            trafficPolicy=policy,
            mode=mode,
            protocol=protocol,
            persistence=persistence,
            masquerade="AsNeeded",
            addresses=ADDRESSES[family],
            backends=[
                raw_backend(name, ip, nodeName=name)
                for name, ip in zip(("here", "there"), PODS[family], strict=True)
                if name in nodes
            ],
        )
        seen = view(wanted, facts=HERE)
        for contents in (seen.before, seen.after):
            await node.give({"web--http": contents})
