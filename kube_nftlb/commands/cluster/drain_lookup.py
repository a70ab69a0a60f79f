"""Find what ``kubectl nftlb drain`` and ``undrain`` are asked for: a backend, or those of a node."""

import asyncio
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.commands.cluster import drain_plan, name_arguments, node_addresses, terminal
from kube_nftlb.commands.cluster.drain_plan import Member, PodRef
from kube_nftlb.commands.cluster.queries import Target, get_if_present, list_if_allowed, namespace_of, slices_for
from kube_nftlb.commands.view import ClusterView, referred
from kube_nftlb.endpointslices.slices import SERVED_SLICES
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NODES, JsonObject


class Meant(NamedTuple):
    """What a name means, though there may be no backend of it."""

    name: str
    namespace: str
    node: JsonObject | None
    """The node that is meant, if one is."""
    announcing: bool
    """True for a node that may announce addresses."""
    view: ClusterView
    everything: list[Member]
    chosen: list[Member]
    may_read_nodes: bool = True

    @property
    def what(self) -> str:
        """What people call it."""
        return f"backend {self.namespace}/{self.name}" if self.node is None else f"node {self.name}"

    @property
    def node_name(self) -> str:
        """The name of the node that is meant; empty for a backend."""
        return self.name if self.node is not None else ""

    @property
    def pod(self) -> PodRef | None:
        """The Pod that may be meant, though no endpoint names it; None for a node."""
        return PodRef(self.namespace, self.name) if self.node is None else None

    def nothing(self) -> errors.KubeNftlbError:
        """Return the error of a name that means nothing."""
        if not self.may_read_nodes:
            what = f"no backend {self.name!r} (namespace {self.namespace})"
            return errors.UnavailableError(f"{what}; whether it is a node is not known: you may not read Nodes")
        hint = "no farm has a backend there" if self.node is not None else f"namespace {self.namespace}"
        return errors.UsageError(f"no backend or node {self.name!r} ({hint})")


async def look_up(kube: Kube, target: Target, name: str) -> Meant:
    """Return what a name means: ``pod/NAME``, ``node/NAME``, or the one of them that exists.

    Raises UsageError for what it cannot mean, UnavailableError for a node if the user may not read Nodes.
    """
    kind, _, plain = name.rpartition("/")
    if kind not in ("", "pod", "node"):
        raise errors.UsageError(f"{name!r} must be a pod, a backend, an address, or a node: pod/NAME or node/NAME")
    if not name_arguments.is_address(plain):
        name_arguments.checked(plain)
    namespace = namespace_of(target)
    node, may_read_nodes = None, True
    async with terminal.progress("asking the API server"):
        try:
            node = await get_if_present(kube, NODES, plain) if kind != "pod" else None
        except errors.KubeError as error:
            if not error.is_refusal:
                raise
            if kind == "node":
                raise errors.UnavailableError("you may not read Nodes, of which this needs one") from None
            may_read_nodes = False
        # Who drains a backend need not see other namespaces.
        view = await farms_and_slices(kube, namespace, everywhere=node is not None)
    everything = drain_plan.members(view)
    backends = [] if kind == "node" else drain_plan.of_backend(plain, namespace, everything)
    if node is not None and backends:
        raise errors.UsageError(f"{plain!r} is a backend and a node: say pod/{plain} or node/{plain}")
    chosen = backends if node is None else drain_plan.of_node(plain, everything)
    announcing = node is not None and await node_addresses.in_use(kube, node)
    return Meant(plain, namespace, node, announcing, view, everything, chosen, may_read_nodes)


async def farms_and_slices(kube: Kube, namespace: str, *, everywhere: bool) -> ClusterView:
    """Return the farms of all namespaces, or of those with backends in this one, and their EndpointSlices."""
    where = None if everywhere else namespace
    farms, slices = await asyncio.gather(
        kube.list(FARMS, where, not_older_than="0"),
        kube.list(ENDPOINT_SLICES, where, label_selector=SERVED_SLICES, not_older_than="0"),
    )
    foreign = [] if everywhere else await _referring(kube, namespace)
    more = await slices_for(kube, foreign)
    return ClusterView([*farms.items, *foreign], slices=[*slices.items, *more])


async def _referring(kube: Kube, namespace: str) -> list[JsonObject]:
    """Return the farms of other namespaces with backends in this one, as far as the user may see them."""

    def refers(raw: JsonObject) -> JsonObject | None:
        elsewhere = raw["metadata"]["namespace"] != namespace
        return raw if elsewhere and any(each.namespace == namespace for each in referred(raw)) else None

    return await list_if_allowed(kube, FARMS, transform=refers) or []
