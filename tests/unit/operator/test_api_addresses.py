"""The API server's addresses behind names, and behind the operator's own connection, are no Service's."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from kube_nftlb.api.rules import IP, METADATA_IPS
from kube_nftlb.endpointslices.slices import ServiceKey, canonical_ip
from kube_nftlb.kube.resources import SERVICES
from kube_nftlb.operator import api_addresses
from kube_nftlb.operator.api_addresses import ApiAddresses
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from tests.builders import raw_service

WEB = ServiceKey("default", "web")
HOST = "api.example.com"
VIP, OTHER, PEER = "203.0.113.7", "203.0.113.8", "203.0.113.9"


class Names:
    """What a name stands for, and what has to be looked at since."""

    def __init__(self) -> None:
        self.ips: Collection[str] = (VIP, "fd00::7")
        self.fails = False
        self.asked: list[str] = []
        self.affected: list[Affected] = []
        self.cache = Cache()
        ingest = Ingest(self.cache)
        ingest.put(SERVICES, raw_service(externalIPs=[VIP, OTHER, PEER]))
        self.addresses = ApiAddresses(
            ["192.0.2.1", HOST, HOST, ""],
            lambda: (PEER,),
            ingest.services.put_api_host,
            self.affected.append,
            self._resolve,
        )

    async def _resolve(self, name: str) -> Collection[str]:
        self.asked.append(name)
        if self.fails:
            raise OSError("no such name")
        return self.ips

    def reserved(self) -> list[str]:
        ips = (VIP, OTHER, PEER, "fd00::7")
        return [ip for ip in ips if self.cache.reserved.why(ip, WEB) == "it is an address of the API server"]


async def test_names_are_resolved_and_followed() -> None:
    names = Names()
    assert names.reserved() == []
    await names.addresses.look()
    assert names.asked == [HOST]
    assert names.reserved() == [VIP, PEER, "fd00::7"]
    assert [each.services for each in names.affected] == [{WEB}, {WEB}], "who asks for external IPs is looked at"
    names.ips = (OTHER,)
    await names.addresses.look()
    assert names.reserved() == [OTHER, PEER]
    await names.addresses.look()
    assert not names.affected[-1].services


async def test_a_name_that_cannot_be_resolved_keeps_its_addresses() -> None:
    names = Names()
    await names.addresses.look()
    names.fails = True
    await names.addresses.look()
    assert VIP in names.reserved()


async def test_the_system_resolves_names() -> None:
    assert await api_addresses.resolved("localhost") <= {"127.0.0.1", "::1"}


ELSEWHERE = [
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:100::100:200",
    "fd00:42::42",
    "fd00:a9fe:a9fe::1",
    "fd00:c1::a9fe:a9fe",
    "fd00:ec2::23",
    "fd00:ec2::254",
    "fd20:ce::254",
]
LINK_LOCAL = ["169.254.0.23", "169.254.42.42", "169.254.169.254", "169.254.170.2", "169.254.170.23", "fe80::a9fe:a9fe"]


@pytest.mark.parametrize("ip", ELSEWHERE + LINK_LOCAL)
def test_nobody_can_name_a_metadata_service(ip: str) -> None:
    assert canonical_ip(ip, "ipv6" if ":" in ip else "ipv4") is None
    assert not IP.holds(ip)
    assert canonical_ip("fd00:EC2:0::254", "ipv6") is None


def test_the_api_server_and_readers_of_the_docs_know_the_same_metadata_services() -> None:
    assert sorted(ELSEWHERE) == sorted(METADATA_IPS)
    assert all(f"'{ip}'" in IP.cel for ip in ELSEWHERE)
    security = (Path(__file__).parents[3] / "docs/security.md").read_text()
    assert all(re.search(rf"[ \n]{re.escape(ip)}[ ,.]", security) for ip in ELSEWHERE)
