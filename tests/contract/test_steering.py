"""Every shape that a farm's part of the agent's own table can have is taken by nft, and is in the kernel."""

import itertools
from typing import Any

import pytest

from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table.base import environment
from kube_nftlb.agent.table.layout import ENVIRONMENT, TABLE
from tests.builders import farm, raw_backend
from tests.contract.test_own_table import Node, node  # noqa: F401 - a fixture
from tests.views import view

HERE = NodeFacts(
    "here", "a", {"ipv4": ("172.31.0.11",), "ipv6": ("fd00:31::b",)}, {"ipv4": ("10.244.1.0/24",), "ipv6": ()}
)


SHAPES = tuple(itertools.product(("Cluster", "Local"), ("none", "srcip"), range(4)))


def addresses(family: str, n: int) -> list[dict[str, Any]]:
    """Return an address of each type, for the farm with this number alone."""
    cluster, external, balanced, ports, ranges = {
        "ipv4": (f"10.96.0.{n}", f"203.0.113.{n}", f"198.51.100.{n}", "80-82", ["10.0.0.0/8", "192.0.2.1/32"]),
        "ipv6": (f"fd00:96::{n}", f"fd00:9::1:{n}", f"fd00:9::{n}", "80", ["fd00::/16"]),
    }[family]
    return [
        {"type": "ClusterIP", "ip": cluster, "ports": "80"},
        {"type": "ExternalIP", "ip": external, "ports": ports},
        {"type": "LoadBalancer", "ip": balanced, "ports": "80", "sourceRanges": ranges},
        {"type": "NodePort", "ip": "", "ports": str(30080 + n)},
    ]


def backends(family: str, n: int, where: int) -> list[dict[str, Any]]:
    """Return a backend on this node if ``where`` has the bit 1, and one on another if it has the bit 2."""
    found = []
    for bit, name in ((1, "here"), (2, "there")):
        ip = f"10.244.{bit}.{n}" if family == "ipv4" else f"fd00:244:{bit}::{n}"
        found += [raw_backend(name, ip, nodeName=name)] if where & bit else []
    return found


async def test_all_shapes(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    run, sent = node.nft.run, list[str]()

    async def run_and_note(commands: str) -> None:
        sent.append(commands)
        await run(commands)

    monkeypatch.setattr(node.nft, "run", run_and_note)
    await node.give({ENVIRONMENT: environment(HERE.pod_cidrs, {"ipv4": ["10.96.0.0/16"], "ipv6": ["fd00:96::/112"]})})
    for family, mode, protocol in itertools.product(("ipv4", "ipv6"), ("snat", "dnat"), ("TCP", "UDP", "SCTP")):
        seen = {}
        for n, (policy, persistence, where) in enumerate(SHAPES, 10):
            name = f"web--{n}"
            wanted = farm(
                name,
                family=family,
                trafficPolicy=policy,
                mode=mode,
                protocol=protocol,
                persistence=persistence,
                masquerade="AsNeeded",
                addresses=addresses(family, n),
                backends=backends(family, n, where),
            )
            seen[name] = view(wanted, facts=HERE)
        # The farms share no address, so what one of them lacks or has too much shows beside the others.
        await node.give({name: each.before for name, each in seen.items()})
        await node.give({name: each.after for name, each in seen.items()})
    assert not [commands for commands in sent if f"delete table inet {TABLE}\n" in commands], (
        "each change is one of what differs"
    )
