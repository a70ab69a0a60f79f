"""Watch what decisions need besides farms: this Node, the addresses of all nodes, and the ServiceCIDRs."""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.announcing.announcing import Announcing
from kube_nftlb.agent.announcing.nodes import NodeSeen, seen
from kube_nftlb.agent.node.info import NodeFacts, family_of, gather
from kube_nftlb.agent.node.own_node import OwnNode, watch_own_node
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.api.base import Family
from kube_nftlb.api.kubernetes.node import ips_of
from kube_nftlb.http_server import ALL_ADDRESSES
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import NODES, SERVICE_CIDRS, JsonObject
from kube_nftlb.netfilter import rtnetlink
from kube_nftlb.settings import AgentSettings

_ADDRESSES_EVERY_S = 10
"""Interval in seconds between reads of the node's addresses, if node ports depend on them."""
_RETRY_S = 1

_log = structlog.get_logger()


class NodeWatch:
    """Passes facts about the node and the cluster to the reconciler, once all are known."""

    def __init__(
        self,
        kube: Kube,
        state: LoopState,
        own_node: OwnNode,
        settings: AgentSettings,
        count: Callable[[int], None] = lambda _: None,
        announcing: Announcing | None = None,
    ) -> None:
        """``count`` gets the number of nodes in the cluster whenever it may have changed.

        ``announcing``, if any, gets what decides which of them may announce addresses.
        """
        self._kube = kube
        self._state = state
        self._settings = settings
        self._own_node = own_node
        self._count = count
        self._announcing = announcing
        self.on_facts: Callable[[], None] = lambda: None
        """Called whenever the addresses for healthCheckNodePorts may have changed."""
        self._local_ips: tuple[str, ...] | None = () if settings.node_port_addresses is None else None
        """The addresses of all interfaces, if node ports depend on them; None before they have been read."""
        self._service_cidrs: dict[str, tuple[str, ...]] | None = None
        own_node.subscribe(self._tell)

    async def run(self) -> None:
        """Watch everything until cancelled."""
        await asyncio.gather(
            watch_own_node(self._kube, self._own_node),
            watch_node_ips(self._kube, self._set_nodes, self._announcing.set_nodes if self._announcing else None),
            self._watch_service_cidrs(),
            self._watch_addresses(),
        )

    def health_check_hosts(self) -> tuple[str, ...]:
        """Return the addresses for healthCheckNodePorts: those of node ports, or all while none is known."""
        return self._facts().all_port_ips or (ALL_ADDRESSES,)

    def _set_nodes(self, ips: frozenset[str], number: int) -> None:
        self._state.set_node_ips(ips)
        self._count(number)

    def _tell(self) -> None:
        self.on_facts()
        if not self._own_node.known or self._service_cidrs is None or self._local_ips is None:
            return
        ranges: dict[Family, set[str]] = {"ipv4": set(), "ipv6": set()}
        for cidrs in self._service_cidrs.values():
            for text in cidrs:
                network = ipaddress.ip_network(text, strict=False)
                ranges[family_of(network)].add(str(network))
        self._state.set_node(self._facts(), ranges)

    def _facts(self) -> NodeFacts:
        settings = self._settings
        return gather(
            settings.node_name,
            self._own_node.last,
            pod_cidrs=settings.pod_cidrs,
            port_ranges=settings.node_port_addresses,
            local_ips=self._local_ips or (),
        )

    async def _watch_service_cidrs(self) -> None:
        def replace(listing: Listing) -> None:
            self._service_cidrs = {raw["metadata"]["name"]: _cidrs(raw) for raw in listing.items}
            self._tell()

        def put(raw: JsonObject) -> None:
            self._service_cidrs = {**(self._service_cidrs or {}), raw["metadata"]["name"]: _cidrs(raw)}
            self._tell()

        def remove(raw: JsonObject) -> None:
            (self._service_cidrs or {}).pop(raw["metadata"]["name"], None)
            self._tell()

        def failed(error: errors.KubeNftlbError) -> None:
            if isinstance(error, errors.NotFoundError) and self._service_cidrs is None:
                # Before Kubernetes 1.33 there are no ServiceCIDRs: connections to unknown ports are not rejected there.
                self._service_cidrs = {}
                self._tell()
            else:
                _log.warning("cannot watch ServiceCIDRs", error=str(error))

        await list_and_watch(self._kube, SERVICE_CIDRS, Handlers(replace, put, remove, failed=failed))

    async def _watch_addresses(self) -> None:
        while self._settings.node_port_addresses is not None:
            try:
                local_ips = await asyncio.to_thread(_addresses)
            except OSError as error:
                _log.warning("cannot read the addresses of this node, retrying", error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if local_ips != self._local_ips:
                self._local_ips = local_ips
                self._tell()
            await asyncio.sleep(_ADDRESSES_EVERY_S)


def _cidrs(raw: JsonObject) -> tuple[str, ...]:
    return tuple(raw.get("spec", {}).get("cidrs") or ())


def _addresses() -> tuple[str, ...]:
    return tuple(sorted(rtnetlink.addresses()))


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
