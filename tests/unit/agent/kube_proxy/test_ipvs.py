"""Virtual servers of kube-proxy's, of messages as pyroute2 gives them. No test runs this on a kernel with IPVS."""

from typing import Any

from kube_nftlb.agent.kube_proxy.ipvs import servers_at


class Attributes(dict[str, Any]):
    def get_attr(self, name: str) -> Any:
        return self.get(name)


def server(address: str, port: int) -> Attributes:
    fields = {"AF": 2, "ADDR": address, "PORT": port, "PROTOCOL": 6}
    return Attributes(
        IPVS_CMD_ATTR_SERVICE=Attributes({f"IPVS_SVC_ATTR_{name}": value for name, value in fields.items()})
    )


def test_only_servers_at_addresses_of_the_interface_are_kube_proxys() -> None:
    dump = [server("10.96.0.1", 443), server("192.0.2.1", 30080), server("10.96.0.10", 53)]
    found = servers_at({"10.96.0.1", "10.96.0.10"}, dump)
    assert [(each["addr"], each["port"], each["protocol"]) for each in found] == [
        ("10.96.0.1", 443, 6),
        ("10.96.0.10", 53, 6),
    ]
