"""Farms as nftlb has them, with what a test says of them and the rest filled in."""

from kube_nftlb.nftlb import objects


def address(ip: str = "10.96.0.10", ports: str = "80", farm: str = "f") -> objects.Address:
    return objects.Address(f"{farm}-{ip}-{ports}", "ipv4", ip, ports, "tcp")


def backend(name: str, mark: int, state: objects.BackendState = "up", port: str = "8080") -> objects.Backend:
    return objects.Backend(name, mark, state, {"ip-addr": f"10.244.1.{mark}", "port": port})


def farm(name: str = "f", *backends: objects.Backend, addresses: list[objects.Address] | None = None) -> objects.Farm:
    listened = [address(farm=name)] if addresses is None else addresses
    return objects.Farm(name, {"mode": "snat"}, {a.name: a for a in listened}, {b.name: b for b in backends})
