import pytest

from kube_nftlb.agent.kube_proxy.chains import is_proxys, removal
from kube_nftlb.netfilter.chains import ForeignChain, Jump

SERVICE, ENDPOINT = "KUBE-SVC-ABCDEFGH234567AB", "KUBE-SEP-ABCDEFGH234567AB"
NAT = [
    *(ForeignChain(name, True) for name in ("PREROUTING", "OUTPUT", "POSTROUTING")),
    *(ForeignChain(name, False) for name in ("KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", SERVICE, ENDPOINT)),
    ForeignChain("SOMEBODYS", False),
]
JUMPS = [
    Jump("PREROUTING", 1, "SOMEBODYS"),
    Jump("PREROUTING", 2, "KUBE-SERVICES"),
    Jump("OUTPUT", 3, "KUBE-SERVICES"),
    Jump("POSTROUTING", 4, "KUBE-POSTROUTING"),
    Jump("KUBE-SERVICES", 5, SERVICE),
    Jump(SERVICE, 6, "KUBE-MARK-MASQ"),
    Jump(SERVICE, 7, ENDPOINT),
    Jump(ENDPOINT, 8, "KUBE-MARK-MASQ"),
]


def test_all_of_kube_proxy_goes_and_nothing_else() -> None:
    found = removal("nat", NAT, JUMPS)
    assert [jump.handle for jump in found.jumps] == [2, 3, 4]
    assert found.chains == sorted(["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", SERVICE, ENDPOINT])
    assert found.blocked == {}


def test_what_rules_of_others_lead_to_stays_and_what_it_needs() -> None:
    for source in ("SOMEBODYS", "PREROUTING"):
        found = removal("nat", NAT, [*JUMPS, Jump(source, 9, "KUBE-MARK-MASQ")])
        assert found.blocked == dict.fromkeys(("KUBE-MARK-MASQ", "KUBE-POSTROUTING"), source)
        assert [jump.handle for jump in found.jumps] == [2, 3], "marked packets are masqueraded"
        assert found.chains == sorted(["KUBE-SERVICES", SERVICE, ENDPOINT])


def test_what_stays_keeps_all_that_it_leads_to() -> None:
    found = removal("nat", NAT, [*JUMPS, Jump("SOMEBODYS", 9, SERVICE)])
    assert set(found.blocked) == {SERVICE, ENDPOINT, "KUBE-MARK-MASQ", "KUBE-POSTROUTING"}
    assert found.chains == ["KUBE-SERVICES"]


def test_a_table_without_kube_proxy_is_left_alone() -> None:
    assert removal("nat", NAT[:3], JUMPS[:1]) == ([], [], {})


@pytest.mark.parametrize(
    ("table", "chain"),
    [
        ("filter", "KUBE-FIREWALL"),
        ("mangle", "KUBE-KUBELET-CANARY"),
        ("mangle", "KUBE-IPTABLES-HINT"),
        ("nat", "KUBE-KUBELET-CANARY"),
        ("filter", "KUBE-ROUTER-INPUT"),
        ("filter", "KUBE-POD-FW-ABCDEFGH234567AB"),
        ("nat", "KUBE-SVC-short"),
        ("filter", SERVICE),
        ("nat", "DOCKER"),
    ],
)
def test_the_chains_of_others_are_not_kube_proxys(table: str, chain: str) -> None:
    assert not is_proxys(table, chain)


@pytest.mark.parametrize(
    ("table", "chain"),
    [
        ("nat", "KUBE-SERVICES"),
        ("nat", "KUBE-EXT-ABCDEFGH234567AB"),
        ("nat", "KUBE-NODE-PORT"),
        ("filter", "KUBE-FORWARD"),
        ("filter", "KUBE-PROXY-FIREWALL"),
        ("filter", "KUBE-IPVS-FILTER"),
        ("mangle", "KUBE-PROXY-CANARY"),
    ],
)
def test_kube_proxys_chains_are_known(table: str, chain: str) -> None:
    assert is_proxys(table, chain)
