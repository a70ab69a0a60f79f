"""Farms as nftlb has them."""

from kube_nftlb.nftlb import objects


def address(
    ip: str = "10.96.0.10", ports: str = "80", *, farm: str = "f", family: str = "ipv4", protocol: str = "tcp"
) -> objects.Address:
    """An address named after its farm, IP and ports."""
    return objects.Address(f"{farm}-{ip}-{ports}", family, ip, ports, protocol)


def backend(
    name: str, mark: int, *, state: objects.BackendState = "up", ip: str | None = None, port: str = "8080"
) -> objects.Backend:
    """A backend whose IP ends with its mark unless ``ip`` says otherwise."""
    return objects.Backend(name, mark, state, {"ip-addr": ip or f"10.244.1.{mark}", "port": port})


def farm(
    name: str = "f",
    *backends: objects.Backend,
    addresses: list[objects.Address] | None = None,
    options: dict[str, str] | None = None,
) -> objects.Farm:
    """A farm with one address unless ``addresses`` says otherwise; ``options`` are added to the mode snat."""
    listening = [address(farm=name)] if addresses is None else addresses
    return objects.Farm(
        name, {"mode": "snat", **(options or {})}, {a.name: a for a in listening}, {b.name: b for b in backends}
    )
