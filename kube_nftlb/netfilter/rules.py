"""Read rules from the kernel, one chain or table at a time, and what their expressions tell."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import NamedTuple, Self

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_TABLE, _CHAIN, _HANDLE, _EXPRESSIONS, _USERDATA = 1, 2, 3, 4, 7
_NAME, _DATA = 1, 2
_IMMEDIATE_DATA, _VERDICT, _VERDICT_CHAIN = 2, 2, 2


class KernelRule(NamedTuple):
    """A rule as the kernel has it."""

    table: str
    chain: str
    handle: int
    """It is unique in the table, and never given twice."""
    expressions: tuple[bytes, ...]
    userdata: bytes | None

    @classmethod
    def parse(cls, answer: bytes) -> Self:
        """Return the rule in an answer or event."""
        found = dict(netlink.attributes(answer))
        return cls(
            netlink.name(found.get(_TABLE)),
            netlink.name(found.get(_CHAIN)),
            int.from_bytes(found.get(_HANDLE, b""), "big"),
            tuple(each for _, each in netlink.attributes(found.get(_EXPRESSIONS, b""))),
            found.get(_USERDATA),
        )

    @property
    def named(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the attributes of each expression."""
        return ((name_of(each), data_of(each)) for each in self.expressions)

    @property
    def target(self) -> str | None:
        """The chain that the rule jumps or goes to; None if it does not."""
        chains = (leads_to(data) for name, data in self.named if name == "immediate")
        return next((chain for chain in chains if chain is not None), None)


async def read(
    netfilter: NetfilterSocket, family: str, table: str, chain: str = "", *, whole: bool = False
) -> AsyncGenerator[KernelRule]:
    """Yield the rules of a chain, or of all chains of a table; none if it does not exist.

    Read them all, or close it (``contextlib.aclosing``), before the next request. Raises KernelError; see
    ``NetfilterSocket.dump`` for ``whole``.
    """
    payload = netlink.text(_TABLE, table) + (netlink.text(_CHAIN, chain) if chain else b"")
    async with aclosing(netfilter.dump(family, netlink.GET_RULES, payload, whole=whole)) as answers:
        async for answer in answers:
            rule = KernelRule.parse(answer)
            # If there is no such chain, the kernel returns all rules of the table; without a table, those of all.
            if rule.table == table and chain in ("", rule.chain):
                yield rule


def name_of(expression: bytes) -> str:
    """Return the name of an expression, such as ``lookup``."""
    return netlink.name(netlink.find(expression, _NAME))


def data_of(expression: bytes) -> bytes:
    """Return the attributes of an expression."""
    return netlink.find(expression, _DATA) or b""


def leads_to(immediate: bytes) -> str | None:
    """Return the chain that a verdict leads to; None if it leads to none."""
    return netlink.name(netlink.find(immediate, _IMMEDIATE_DATA, _VERDICT, _VERDICT_CHAIN)) or None
