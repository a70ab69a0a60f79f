"""Watch the addresses of all nodes: a node port is claimed on each of them, on every node."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kube_nftlb.agent.announcing.nodes import NodeSeen, seen
from kube_nftlb.api.kubernetes.node import ips_of
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import NODES, JsonObject


class _Known(NamedTuple):
    ips: tuple[str, ...]
    seen: NodeSeen | None


async def watch_node_ips(
    kube: Kube,
    tell: Callable[[frozenset[str], int], None],
    tell_nodes: Callable[[Mapping[str, NodeSeen], frozenset[str]], None] | None = None,
) -> None:
    """Call ``tell`` with the addresses of all nodes, and their number, first and on each change, until cancelled.

    ``tell_nodes``, if given, gets what else bears on where addresses are announced, and the addresses.
    """
    known: dict[str, _Known] = {}

    def read(raw: JsonObject) -> _Known:
        return _Known(ips_of(raw), seen(raw) if tell_nodes is not None else None)

    def put(raw: JsonObject) -> None:
        name, now = raw["metadata"]["name"], read(raw)
        # Kubelets write their Nodes every five minutes.
        if known.get(name) != now:
            known[name] = now
            report()

    def remove(raw: JsonObject) -> None:
        if known.pop(raw["metadata"]["name"], None) is not None:
            report()

    def report() -> None:
        ips = frozenset(ip for each in known.values() for ip in each.ips)
        tell(ips, len(known))
        if tell_nodes is not None:
            tell_nodes({name: each.seen for name, each in known.items() if each.seen is not None}, ips)

    def replace(listing: Listing) -> None:
        known.clear()
        known.update((item["metadata"]["name"], item["known"]) for item in listing.items)
        report()

    def slim(raw: JsonObject) -> JsonObject:
        return {"metadata": {"name": raw["metadata"]["name"]}, "known": read(raw)}

    await list_and_watch(kube, NODES, Handlers(replace, put, remove), transform=slim)
