"""A table of another program, before ours in the kernel's list, that goes while chains are listed."""

import pytest

from kube_nftlb.netfilter.netlink import NetfilterSocket
from tests.contract.nftables_node import nft


def add_older_table() -> None:
    """Add the table, with more chains than the kernel tells at once; ours has to be made after it."""
    chains = "; ".join(f"chain c{number} {{ }}" for number in range(2000))
    nft(f"table inet older {{ {chains}; }}")


def end_older_table(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Have the table deleted once some of its chains were told. Return these, once they are."""
    receive = NetfilterSocket._receive  # noqa: SLF001 - nobody else knows where a datagram ends
    found: list[bytes] = []

    async def between(socket: NetfilterSocket) -> list[tuple[int, int, int, bytes]]:
        received = await receive(socket)
        if not found and (some := [data for *_, data in received if b"older" in data]):
            found.extend(some)
            nft("delete table inet older")
        return received

    monkeypatch.setattr(NetfilterSocket, "_receive", between)
    return found
