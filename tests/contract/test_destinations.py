"""What kube-proxy's maps and rules serve, read from the kernel as nft and iptables have written it."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from kube_nftlb.netfilter.chains import KernelChains
from kube_nftlb.netfilter.destinations import Destination

SVC = "KUBE-SVC-NPX46M4PTMTKRN6Y"
CHAIN = "service-ULMVA6XW-default/web/tcp/http"


@pytest.fixture
async def reader(private_network: None) -> AsyncIterator[KernelChains]:  # noqa: ARG001 - by name
    opened = KernelChains.open()
    yield opened
    opened.close()


@pytest.fixture
def in_nftables(private_network: None) -> Iterator[None]:  # noqa: ARG001 - by name
    text = ""
    for family, kind, ips in (
        ("ip", "ipv4_addr", ("10.96.0.1", "10.96.0.10")),
        ("ip6", "ipv6_addr", ("fd00::1", "fd00::a")),
    ):
        tcp, udp = (f"{ip} . {protocol}" for ip, protocol in zip(ips, ("tcp . 443", "udp . 53"), strict=True))
        text += f"""
table {family} kube-proxy {{
  chain {CHAIN} {{ }}
  map service-ips {{
    type {kind} . inet_proto . inet_service : verdict
    elements = {{ {tcp} : goto {CHAIN}, {udp} : goto {CHAIN} }}
  }}
  map service-nodeports {{
    type inet_proto . inet_service : verdict
    elements = {{ sctp . 30443 : goto {CHAIN} }}
  }}
}}"""
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    yield
    subprocess.run(["nft", "delete table ip kube-proxy; delete table ip6 kube-proxy"], check=True)


@pytest.mark.parametrize(("family", "ips"), [("ip", ("10.96.0.1", "10.96.0.10")), ("ip6", ("fd00::1", "fd00::a"))])
async def test_maps_of_addresses_and_node_ports(
    reader: KernelChains,
    in_nftables: None,  # noqa: ARG001 - by name
    family: str,
    ips: tuple[str, str],
) -> None:
    assert set(await reader.mapped(family, "kube-proxy", "service-ips")) == {
        Destination(ips[0], "TCP", 443, CHAIN),
        Destination(ips[1], "UDP", 53, CHAIN),
    }
    assert await reader.mapped(family, "kube-proxy", "service-nodeports") == [Destination(None, "SCTP", 30443, CHAIN)]
    assert await reader.mapped(family, "kube-proxy", "no-such-map") == []
    assert await reader.mapped(family, "no-such-table", "service-ips") == []


@pytest.fixture
def in_iptables(private_network: None) -> Iterator[None]:  # noqa: ARG001 - by name
    if shutil.which("iptables-restore") is None:
        pytest.skip("needs iptables")
    for program, ip, root in (("iptables-restore", "10.96.0.1", "32"), ("ip6tables-restore", "fd00::1", "128")):
        # As kube-proxy does (pkg/proxy/iptables/proxier.go).
        rules = "".join(
            f'-A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -m {protocol} -p {protocol}'
            f" -d {ip}/{root} --dport {port} -j {SVC}\n"
            for protocol, port in (("tcp", 443), ("udp", 53), ("sctp", 5000))
        )
        rules += f"-A KUBE-NODEPORTS -m comment --comment default/web:http -m tcp -p tcp --dport 30443 -j {SVC}\n"
        rules += "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
        chains = "".join(f":{chain} - [0:0]\n" for chain in ("KUBE-SERVICES", "KUBE-NODEPORTS", SVC))
        subprocess.run([program, "--noflush"], input=f"*nat\n{chains}{rules}COMMIT\n", text=True, check=True)
    yield
    subprocess.run(["nft", "delete table ip nat; delete table ip6 nat"], check=True)


@pytest.mark.parametrize(("family", "ip"), [("ip", "10.96.0.1"), ("ip6", "fd00::1")])
async def test_rules_of_iptables(
    reader: KernelChains,
    in_iptables: None,  # noqa: ARG001 - by name
    family: str,
    ip: str,
) -> None:
    comment = "default/web:http cluster IP"
    assert await reader.destinations(family, "nat", "KUBE-SERVICES") == [
        Destination(ip, "TCP", 443, SVC, comment),
        Destination(ip, "UDP", 53, SVC, comment),
        Destination(ip, "SCTP", 5000, SVC, comment),
        Destination(None, "", 0, "KUBE-NODEPORTS"),
    ]
    found = await reader.destinations(family, "nat", "KUBE-NODEPORTS")
    assert found == [Destination(None, "TCP", 30443, SVC, "default/web:http")]
    assert await reader.destinations(family, "nat", "no-such-chain") == []
