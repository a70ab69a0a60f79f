"""Connections that begin while the rules for them change: no packet passes untranslated between two lookups.

A packet that did would leave its whole connection untranslated, also the packets that repeat it.
"""

import itertools
import socket
import time
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables.layout import TABLE
from tests.contract.affinity_cost import STICKY
from tests.contract.nftables_node import VIPS, Node, listed, nft, spec
from tests.contract.servers import ENDPOINTS
from tests.contract.test_replacement import connecting

SECONDS = 6


@pytest.mark.parametrize(
    ("farm", "endpoints_of"),
    [
        pytest.param({**STICKY, "scheduler": "weight"}, (5, 1), id="the endpoint that was chosen has gone"),
        pytest.param({}, (5, 2, 3, 4), id="the chain that chooses is new"),
    ],
)
async def test_no_client_is_left_waiting_while_endpoints_come_and_go(
    node: Node, farm: dict[str, Any], endpoints_of: tuple[int, ...]
) -> None:
    changes = [spec(VIPS[0], *ENDPOINTS[:number], **farm) for number in endpoints_of]
    await node.put("web", changes[0])
    with connecting(VIPS[0], patience_s=0.9) as outcomes:
        until = time.monotonic() + SECONDS
        for each in itertools.cycle(changes):
            await node.put("web", each)
            # What no farm uses any more goes, so chains are made anew.
            await node.engine.maintain(busy=False)
            if time.monotonic() > until:
                break
    assert outcomes.counts.keys() == {"served"}, outcomes.counts


@pytest.mark.parametrize(
    ("farm", "gone"), [({}, "endpoints-ip"), (STICKY, "picks-ip"), (STICKY, "sticky-endpoints-ip")]
)
async def test_a_connection_that_finds_no_endpoint_is_served_once_there_is_one(
    node: Node, farm: dict[str, Any], gone: str
) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS, **farm))
    before = listed("ruleset")
    nft(f"flush map inet {TABLE} {gone}")
    with socket.socket() as client:
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.connect((VIPS[0], 80))
        # The kernel goes on: it sends the packet again after a second.
        client.settimeout(4)
        nft(f"flush ruleset; {before}")
        assert client.recv(100).decode() in ENDPOINTS
