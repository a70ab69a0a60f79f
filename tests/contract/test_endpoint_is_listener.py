"""An endpoint that is a listener of its own farm, as a pod with the host's network whose port is the node port.

The kernel calls a connection translated only if its destination has become another one.
"""

import socket

import pytest

from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.netfilter.conntrack.entries import UDP
from kube_nftlb.netfilter.conntrack.table import Conntrack
from tests.builders import farm, raw_backend
from tests.contract.nftables_node import ask
from tests.contract.servers import ENDPOINTS, PORT
from tests.contract.test_options import Node, node  # noqa: F401 - a fixture
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import FakeConntrack, endpoint

OWN, OTHER = ENDPOINTS[:2]


@pytest.mark.usefixtures("endpoint_servers")
@pytest.mark.parametrize("mode", ["snat", "dnat"])
async def test_nftlb_serves_new_connections_to_it(node: Node, mode: str) -> None:  # noqa: F811 - the fixture's value
    addresses = [{"ip": OWN, "ports": str(PORT)}]
    await node.bring(farm(mode=mode, addresses=addresses, backends=[raw_backend("own", OWN, PORT)]))
    assert ask(OWN, PORT) == OWN
    await node.bring(farm(mode=mode, addresses=addresses, backends=[raw_backend("other", OTHER, PORT)]))
    assert ask(OWN, PORT) == OTHER


@pytest.mark.usefixtures("endpoint_servers")
async def test_flows_to_it_go_on_until_it_is_gone(node: Node) -> None:  # noqa: F811 - the fixture's value
    addresses = [{"ip": OWN, "ports": "53"}]
    conntrack = Conntrack.open()
    connections = Connections(conntrack, FakeConntrack(), FakeClock())
    before = None
    with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        server.bind((OWN, 53))
        client.bind((OTHER, 0))
        kept = []
        for ip in (OWN, OTHER):
            wanted = farm(protocol="UDP", addresses=addresses, backends=[raw_backend("dns", ip, 53)])
            await node.bring(wanted)
            if before is None:
                client.sendto(b"?", (OWN, 53))
                server.settimeout(5)
                assert server.recv(1) == b"?"
            connections.changed("dns", seen := node_farm(wanted, NodeFacts(), None), before)
            before = SentFarm("nftlb", frozenset(seen.listeners), 1, 1)
            await connections.look()
            kept.append(await conntrack.one(UDP, endpoint(OTHER, client.getsockname()[1]), endpoint(OWN, 53)))
    conntrack.close()
    assert [each and each.is_translated for each in kept] == [False, None]
