"""Watch the addresses of all nodes: a node port is claimed on each of them, on every node."""

from collections.abc import Callable

from kube_nftlb.api.kubernetes.node import ips_of
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import NODES, JsonObject


async def watch_node_ips(kube: Kube, tell: Callable[[frozenset[str], int], None]) -> None:
    """Call ``tell`` with the addresses of all nodes, and their number, first and on each change, until cancelled."""
    known: dict[str, tuple[str, ...]] = {}

    def put(raw: JsonObject) -> None:
        name, ips = raw["metadata"]["name"], ips_of(raw)
        # Kubelets write their Nodes every five minutes.
        if known.get(name) != ips:
            known[name] = ips
            report()

    def remove(raw: JsonObject) -> None:
        if known.pop(raw["metadata"]["name"], None) is not None:
            report()

    def report() -> None:
        tell(frozenset(ip for ips in known.values() for ip in ips), len(known))

    def replace(listing: Listing) -> None:
        known.clear()
        known.update((item["metadata"]["name"], tuple(item["ips"])) for item in listing.items)
        report()

    def slim(raw: JsonObject) -> JsonObject:
        return {"metadata": {"name": raw["metadata"]["name"]}, "ips": ips_of(raw)}

    await list_and_watch(kube, NODES, Handlers(replace, put, remove), transform=slim)
