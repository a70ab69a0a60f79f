"""Watch the Node object of this agent."""

from collections.abc import Callable

import structlog
from pydantic import ValidationError

from kube_nftlb.api.base import first_error
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import NODES, JsonObject

_log = structlog.get_logger()


class OwnNode:
    """The latest state of one Node.

    ``current`` is None if the Node does not exist, and before the first list, when ``known`` is False. ``last`` is what
    the node is served by, which runs on if its Node is deleted: the latest addresses and ranges of pods count until the
    Node that is registered next has some.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.current: CoreNode | None = None
        self.last: CoreNode | None = None
        self.known = False
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after each change of a field that CoreNode has."""
        self._listeners.append(on_change)

    def update(self, node: CoreNode | None) -> None:
        """Set the state; None if the Node does not exist."""
        news = not self.known or node != self.current
        self.known = True
        self.current = node
        if node is not None:
            self.last = _completed(node, self.last) if self.last is not None else node
        if news:
            for on_change in self._listeners:
                on_change()


def _completed(node: CoreNode, before: CoreNode) -> CoreNode:
    spec = node.spec if node.spec.pod_cidrs else before.spec
    has_address = any(each.type == "InternalIP" for each in node.status.addresses)
    status = node.status if has_address else before.status
    return node.model_copy(update={"spec": spec, "status": status})


async def watch_own_node(kube: Kube, own_node: OwnNode) -> None:
    """Keep ``own_node`` up to date until cancelled; while the API server is unreachable it stays as it was."""

    def update(raw: JsonObject | None) -> None:
        if raw is None:
            _log.warning("Node object of this agent not found", name=own_node.name)
            own_node.update(None)
            return
        try:
            own_node.update(CoreNode.model_validate(raw))
        except ValidationError as error:
            _log.warning("invalid Node object of this agent, keeping the last one", error=first_error(error))

    await list_and_watch(kube, NODES, Handlers.for_one(update), field_selector=f"metadata.name={own_node.name}")
