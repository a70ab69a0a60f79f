"""A client whose first packet went to an endpoint that has just ended is served by another one."""

import socket
import subprocess
from typing import Any

import pytest

from tests.contract.affinity_cost import STICKY
from tests.contract.nftables_node import VIPS, Node, nft, spec
from tests.contract.servers import ENDPOINTS

NOBODY = "10.244.0.99"
"""An endpoint whose pod has ended: nothing answers its packets, and nobody says so."""


def silence() -> None:
    """Have packets to NOBODY disappear once they have left, as on their way to a pod on another node."""
    subprocess.run(["ip", "addr", "replace", f"{NOBODY}/32", "dev", "lo"], check=True)
    nft(f"table ip silent {{ chain input {{ type filter hook input priority 0; ip daddr {NOBODY} drop; }}; }}")


@pytest.mark.parametrize("farm", [{}, STICKY], ids=["plain", "with persistence"])
async def test_a_repeated_first_packet_goes_to_an_endpoint_that_is_there(node: Node, farm: dict[str, Any]) -> None:
    silence()
    await node.put("web", spec(VIPS[0], NOBODY, **farm))
    with socket.socket() as client:
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.connect((VIPS[0], 80))
        await node.put("web", spec(VIPS[0], *ENDPOINTS, **farm))
        await node.connections.look()
        # The kernel sends the packet again after a second.
        client.settimeout(3)
        assert client.recv(100).decode() in ENDPOINTS
