"""Reading chains of other programs, of answers as the kernel gives them."""

from collections.abc import AsyncGenerator, Callable
from typing import cast

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.chains import Jump, KernelChains
from kube_nftlb.netfilter.netlink import NetfilterSocket, attribute, text


def rule(table: str, chain: str, handle: int, target: str = "") -> bytes:
    """Return the attributes of a rule that jumps to a chain, or only counts."""
    verdict = attribute(2, attribute(2, attribute(2, text(2, target), nested=True), nested=True), nested=True)
    expression = text(1, "immediate") + verdict if target else text(1, "counter")
    expressions = attribute(4, attribute(1, expression, nested=True), nested=True)
    return text(1, table) + text(2, chain) + attribute(3, handle.to_bytes(8, "big")) + expressions


class Kernel:
    """A table with more rules than anyone reads at once: they are only dumped, each when it is asked for."""

    def __init__(self, rules: int, make: Callable[[int], bytes]) -> None:
        self.rules, self.make = rules, make
        self.read = 0
        self.open = 0

    async def ask(self, _family: str, kind: int, _payload: bytes = b"", *, dump: bool = False) -> list[bytes]:
        assert not dump, "all answers at once have no bound"
        assert kind == netlink.GET_CHAIN
        return [b"chain"]

    async def dump(
        self, _family: str, _kind: int, _payload: bytes = b"", *, whole: bool = False
    ) -> AsyncGenerator[bytes]:
        assert not whole, "there may be tens of thousands of rules, and always somebody who changes nftables meanwhile"
        self.open += 1
        try:
            for number in range(1, self.rules + 1):
                self.read += 1
                yield self.make(number)
        finally:
            self.open -= 1


def reader(kernel: Kernel) -> KernelChains:
    return KernelChains(cast("NetfilterSocket", kernel))


async def test_of_a_chain_only_the_first_rule_is_read() -> None:
    kernel = Kernel(100_000, lambda number: rule("nat", "KUBE-SERVICES", number + 6))
    assert await reader(kernel).first_rule("ip", "nat", "KUBE-SERVICES") == 7
    assert (kernel.read, kernel.open) == (1, 0), "the dump is closed, as the kernel allows one at a time"


async def test_an_empty_chain_has_no_first_rule() -> None:
    assert await reader(Kernel(0, bytes)).first_rule("ip", "nat", "KUBE-SERVICES") is None


async def test_of_all_rules_only_jumps_of_the_table_are_kept() -> None:
    made = [
        rule("nat", "OUTPUT", 3, "KUBE-SERVICES"),
        rule("nat", "OUTPUT", 4),
        rule("filter", "OUTPUT", 5, "KUBE-FIREWALL"),
        rule("nat", "PREROUTING", 6, "KUBE-SERVICES"),
    ]
    kernel = Kernel(len(made), lambda number: made[number - 1])
    assert await reader(kernel).jumps("ip", "nat") == [
        Jump("OUTPUT", 3, "KUBE-SERVICES"),
        Jump("PREROUTING", 6, "KUBE-SERVICES"),
    ]
    assert kernel.open == 0
