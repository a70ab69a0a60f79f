"""The agent removes what kube-proxy left: once, when its own rules are there, and never beside a kube-proxy."""

import asyncio
from collections.abc import Callable, Collection, Sequence

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.kube_proxy.rules import ProxyRules
from kube_nftlb.agent.kube_proxy.served import Served
from kube_nftlb.agent.kube_proxy.takeover import QUIET_S, Takeover, until_proxy_serves
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.netfilter.chains import ForeignChain, Jump
from kube_nftlb.netfilter.destinations import Destination
from kube_nftlb.netfilter.nftables.messages import Message
from tests.fakes.clock import FakeClock


class Kernel:
    """Tables, and chains of iptables, with one rule each, in the table nat."""

    def __init__(self) -> None:
        self.tables: set[tuple[str, str]] = set()
        self.nat: dict[str, list[str]] = {"ip": [], "ip6": []}
        self.ipvs = False
        self.commits: list[tuple[str, int]] = []
        self.written = 7
        """The handle of the rules that were written last."""
        self.refuses = False
        self.ipvs_error: Exception | None = None
        self.map = [Destination("10.96.0.10", "TCP", 80, "service-ABCDEFGH-default/web/tcp/http")]
        self.rules = [
            Destination("10.96.0.10", "TCP", 80, f"KUBE-SVC-{'A' * 16}", "default/web:http cluster IP"),
            Destination("10.96.0.10", "TCP", 80, "KUBE-MARK-MASQ", "default/web:http cluster IP"),
        ]

    def kube_proxy_writes(self) -> None:
        self.tables = {("ip", "kube-proxy"), ("ip6", "kube-proxy")}

    async def table_handle(self, family: str, table: str) -> int | None:
        return 1 if table == "nat" or (family, table) in self.tables else None

    async def first_rule(self, family: str, table: str, chain: str) -> int | None:
        there = chain in self.nat[family] if table == "nat" else (family, table) in self.tables
        return self.written if there else None

    async def chains(self, family: str, table: str) -> list[ForeignChain]:
        return [ForeignChain(name, False) for name in self.nat[family]] if table == "nat" else []

    async def jumps(self, family: str, table: str) -> list[Jump]:
        return []

    async def mapped(self, family: str, table: str, name: str) -> list[Destination]:
        return list(self.map) if name == "service-ips" and (family, table) in self.tables and family == "ip" else []

    async def destinations(self, family: str, table: str, chain: str) -> list[Destination]:
        return list(self.rules) if chain in self.nat[family] and table == "nat" and family == "ip" else []

    def served(self) -> list[Destination]:
        return []

    async def commit(self, messages: Sequence[Message], family: str = "inet") -> None:
        if self.refuses:
            raise errors.KernelError("busy")
        self.commits.append((family, len(messages)))
        self.tables.discard((family, "kube-proxy"))
        self.nat[family] = [] if len(messages) > 1 else self.nat[family]

    def found(self) -> bool:
        return self.ipvs

    def remove(self) -> str:
        # As pyroute2 does.
        asyncio.run(asyncio.sleep(0))
        if self.ipvs_error is not None:
            raise self.ipvs_error
        self.ipvs = False
        return "2 virtual servers"


class Node:
    """A node, its agent's progress, and who listens."""

    def __init__(self, *, cleanup: bool = True) -> None:
        self.kernel, self.clock, self.progress = Kernel(), FakeClock(), Progress()
        self.ports: list[int] = []
        self.legacy = False
        self.told: list[str] = []
        self.changes = 0
        self.missing = False
        """True if the agent serves nothing of what kube-proxy's rules do."""
        self.asked: list[str] = []
        self.rules = ProxyRules(self.kernel, self.kernel, self.kernel)
        self.takeover = Takeover(
            self.rules,
            self.progress,
            self.clock,
            ports=lambda: self.ports,
            legacy_nat=lambda: self.legacy,
            unserved=self._unserved,
            cleanup=cleanup,
            on_change=self._changed,
            on_removed=self.told.append,
        )

    def _unserved(self, served: Collection[Served]) -> list[Served]:
        self.asked = [str(each) for each in served]
        return list(served) if self.missing else []

    def _changed(self) -> None:
        self.changes += 1

    async def look(self, after_s: float = 0) -> str:
        self.clock.time += after_s
        await self.takeover.look()
        assert self.progress.kube_proxy is not None
        return self.progress.kube_proxy.reason


@pytest.fixture
def node() -> Node:
    """A node that is programmed, with what kube-proxy left in nftables."""
    made = Node()
    made.kernel.kube_proxy_writes()
    made.progress.lag.done_at = 1.0
    return made


async def test_a_node_that_never_had_kube_proxy_says_so_once() -> None:
    node = Node()
    assert [await node.look(), await node.look(60)] == ["NoKubeProxy", "NoKubeProxy"]
    assert node.changes == 1
    assert node.kernel.commits == []


async def test_rules_that_cannot_be_read_leave_it_open() -> None:
    node = Node()
    node.legacy = True
    assert await node.look() == "KubeProxyUnknown"


async def test_rules_are_removed_once_kube_proxy_has_been_gone_for_a_while(node: Node) -> None:
    node.ports = [10249]
    assert await node.look() == "KubeProxyRuns"
    node.ports = []
    assert await node.look(60) == "KubeProxyRulesPending"
    assert await node.look(QUIET_S - 1) == "KubeProxyRulesPending"
    assert node.kernel.commits == []
    assert await node.look(1) == "NoKubeProxy"
    assert node.kernel.commits == [("ip", 1), ("ip6", 1)]
    assert node.told == [
        "kube-proxy is gone, and the rules that it left are removed: table ip kube-proxy, table ip6 kube-proxy"
    ]


async def test_a_kube_proxy_that_restarts_keeps_its_rules(node: Node) -> None:
    for _ in range(5):
        node.ports = [10256]
        assert await node.look(60) == "KubeProxyRuns"
        node.ports = []
        assert await node.look(1) == "KubeProxyRulesPending"
        assert await node.look(QUIET_S - 1) == "KubeProxyRulesPending"
    assert node.kernel.commits == []


@pytest.mark.parametrize("why", ["not yet", "engine", "pass"])
async def test_nothing_is_removed_before_the_agents_own_rules_are_there(node: Node, why: str) -> None:
    progress = node.progress
    if why == "not yet":
        progress.lag.done_at = None
    progress.engine_error = "away" if why == "engine" else None
    progress.pass_error = "no" if why == "pass" else None
    await node.look()
    assert await node.look(60) == "KubeProxyRulesPending"
    assert node.kernel.commits == []


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
async def test_an_agent_with_no_farms_does_not_remove_what_serves(node: Node, mode: str) -> None:
    if mode == "iptables":
        node.kernel.tables, node.kernel.nat["ip"] = set(), ["KUBE-SERVICES"]
    node.missing = True
    assert [await node.look(), await node.look(600)] == ["KubeProxyRulesPending"] * 2
    assert node.kernel.commits == []
    assert node.asked == ["10.96.0.10 port 80 (TCP) of default/web"]
    assert node.progress.kube_proxy is not None
    assert "there is none for 10.96.0.10 port 80 (TCP) of default/web" in node.progress.kube_proxy.message


async def test_rules_stay_until_all_that_they_serve_has_been_served_for_a_while(node: Node) -> None:
    node.missing = True
    assert await node.look(600) == "KubeProxyRulesPending"
    node.missing = False
    assert [await node.look(1), await node.look(QUIET_S - 1)] == ["KubeProxyRulesPending"] * 2
    node.missing = True
    assert await node.look(0.5) == "KubeProxyRulesPending", "a farm was withdrawn"
    node.missing = False
    assert [await node.look(1), await node.look(QUIET_S - 1)] == ["KubeProxyRulesPending"] * 2
    assert node.kernel.commits == []
    assert await node.look(1) == "NoKubeProxy"


async def test_rules_that_are_written_meanwhile_are_read_again(node: Node) -> None:
    assert await node.look() == "KubeProxyRulesPending"
    node.kernel.written = 8
    node.kernel.map.append(Destination(None, "UDP", 30053, "external-ABCDEFGH-default/dns/udp/dns"))
    await node.look(1)
    assert node.asked[1:] == ["node port 30053 (UDP) of default/dns"]


async def test_rules_that_return_are_reported_and_not_removed_again(node: Node) -> None:
    await node.look()
    assert await node.look(QUIET_S) == "NoKubeProxy"
    node.kernel.kube_proxy_writes()
    before = list(node.kernel.commits)
    assert [await node.look(1), await node.look(600)] == ["KubeProxyRulesReturned"] * 2
    assert node.kernel.commits == before
    assert node.progress.kube_proxy is not None
    assert "table ip kube-proxy" in node.progress.kube_proxy.message


async def test_rules_that_appear_while_the_agent_has_the_ports_are_not_left_rules() -> None:
    node = Node()
    node.progress.lag.done_at = 1.0
    assert await node.look() == "NoKubeProxy"
    node.kernel.kube_proxy_writes()
    assert [await node.look(60), await node.look(600)] == ["KubeProxyRulesReturned"] * 2
    assert node.kernel.commits == []


async def test_a_kube_proxy_that_comes_and_goes_leaves_rules() -> None:
    node = Node()
    node.progress.lag.done_at = 1.0
    assert await node.look() == "NoKubeProxy"
    node.kernel.kube_proxy_writes()
    node.ports = [10249]
    assert await node.look(60) == "KubeProxyRuns"
    node.ports = []
    assert [await node.look(1), await node.look(QUIET_S)] == ["KubeProxyRulesPending", "NoKubeProxy"]


async def test_without_cleanup_rules_are_only_reported() -> None:
    node = Node(cleanup=False)
    node.kernel.kube_proxy_writes()
    node.progress.lag.done_at = 1.0
    assert [await node.look(), await node.look(600)] == ["KubeProxyRulesLeft"] * 2
    assert node.kernel.commits == []


async def test_chains_of_iptables_and_ipvs_are_removed_too(node: Node) -> None:
    node.kernel.nat = {"ip": ["KUBE-SERVICES", "KUBE-MARK-MASQ"], "ip6": ["KUBE-SERVICES"]}
    node.kernel.tables, node.kernel.ipvs = set(), True
    await node.look()
    assert await node.look(QUIET_S) == "NoKubeProxy"
    # To empty each chain, and to delete each.
    assert node.kernel.commits == [("ip", 4), ("ip6", 2)]
    assert node.told[0].endswith("removed: 2 chains of ip nat, 1 chain of ip6 nat, 2 virtual servers")


async def test_a_refusal_is_reported_and_tried_again(node: Node) -> None:
    await node.look()
    node.kernel.refuses = True
    assert await node.look(QUIET_S) == "KubeProxyUnknown"
    node.kernel.refuses = False
    assert await node.look(1) == "NoKubeProxy"


async def test_what_a_failing_removal_removed_is_not_removed_again(node: Node) -> None:
    node.kernel.ipvs, node.kernel.ipvs_error = True, errors.KernelError("no IPVS")
    await node.look()
    assert await node.look(QUIET_S) == "KubeProxyUnknown"
    commits = list(node.kernel.commits)
    assert commits == [("ip", 1), ("ip6", 1)]
    assert await node.look(1) == "KubeProxyUnknown", "IPVS is tried again"
    node.kernel.kube_proxy_writes()
    assert [await node.look(1), await node.look(600)] == ["KubeProxyRulesReturned"] * 2
    assert node.kernel.commits == commits


async def test_the_rest_of_a_removal_that_failed_is_removed_later(node: Node) -> None:
    node.kernel.ipvs, node.kernel.ipvs_error = True, errors.KernelError("no IPVS")
    await node.look()
    assert await node.look(QUIET_S) == "KubeProxyUnknown"
    node.kernel.ipvs_error = None
    assert await node.look(1) == "NoKubeProxy"
    assert not node.kernel.ipvs


async def test_an_error_that_nobody_expects_does_not_freeze_the_state(node: Node) -> None:
    node.kernel.ipvs, node.kernel.ipvs_error = True, RuntimeError("a bug")
    assert await node.look() == "KubeProxyRulesPending"
    assert await node.look(QUIET_S) == "KubeProxyUnknown"
    assert node.progress.kube_proxy is not None
    assert "a bug" in node.progress.kube_proxy.message
    node.kernel.kube_proxy_writes()
    commits = list(node.kernel.commits)
    assert await node.look(1) == "KubeProxyRulesReturned"
    assert node.kernel.commits == commits


class Return(FakeClock):
    """A node that goes back to kube-proxy, and what happens on it after so many seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = Kernel()
        self.rules = ProxyRules(self.kernel, self.kernel, self.kernel)
        self.ports: list[int] = []
        self.plan: dict[float, Callable[[], None]] = {}

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        for due in [each for each in self.plan if each <= self.time]:
            self.plan.pop(due)()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.plan[self.time + seconds] = what

    async def took_s(self, *, gone: bool = False) -> float | None:
        """Return how long it took until kube-proxy serves; None if it did not within a minute."""
        began = self.time
        served = await until_proxy_serves(self.rules, lambda: self.ports, ["ip", "ip6"], self, 60, gone=gone)
        return self.time - began if served else None


async def test_a_node_goes_back_only_to_a_kube_proxy_with_rules_for_all_families() -> None:
    node = Return()
    assert await node.took_s() is None
    node.after(1, lambda: node.kernel.nat.update(ip=["KUBE-SERVICES"]))
    assert await node.took_s() is None
    node.kernel.nat["ip"] = []
    node.after(1, lambda: node.kernel.nat.update(ip=["KUBE-SERVICES"]))
    node.after(10, lambda: node.kernel.tables.add(("ip6", "kube-proxy")))
    assert await node.took_s() == pytest.approx(10, abs=0.5)


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
async def test_a_node_is_not_left_to_rules_of_a_kube_proxy_that_is_gone(mode: str) -> None:
    node = Return()
    if mode == "nftables":
        node.kernel.kube_proxy_writes()
    else:
        node.kernel.nat = {"ip": ["KUBE-SERVICES"], "ip6": ["KUBE-SERVICES"]}
    assert await node.took_s() is None
    node.after(20, lambda: setattr(node.kernel, "written", 107))
    assert await node.took_s() == pytest.approx(20, abs=0.5), "a kube-proxy has written them anew"


async def test_a_kube_proxy_may_be_faster_than_the_agent_is_told_to_stop() -> None:
    node = Return()
    node.kernel.kube_proxy_writes()
    assert await node.took_s(gone=True) == 0


async def test_a_kube_proxy_that_ran_before_needs_to_write_nothing() -> None:
    node = Return()
    node.kernel.kube_proxy_writes()
    node.ports = [10249]
    assert await node.took_s() == pytest.approx(QUIET_S, abs=0.5)


async def test_a_kube_proxy_that_only_begins_to_listen_has_to_stay() -> None:
    node = Return()
    node.kernel.kube_proxy_writes()
    node.after(1, lambda: node.ports.append(10249))
    node.after(QUIET_S, node.ports.clear)
    node.after(20, lambda: node.ports.append(10249))
    assert await node.took_s() == pytest.approx(20 + QUIET_S, abs=0.5)


async def test_a_kube_proxy_that_listens_without_rules_does_not_serve() -> None:
    node = Return()
    node.ports = [10249]
    assert await node.took_s() is None
