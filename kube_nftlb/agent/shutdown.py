"""The end of the agent: its rules stay, unless it is uninstalled or its node is moved back."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.cleanup import NFTLB_S, clean
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.kube_proxy.rules import ProxyRules
from kube_nftlb.agent.kube_proxy.takeover import Ports, until_proxy_serves
from kube_nftlb.agent.node.daemonset import OwnDaemonSet
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NFTLB_NODES
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.settings import NftlbSettings

GRACE_S = 120.0
"""The pod's terminationGracePeriodSeconds."""
HAND_OVER_S = 90.0
"""Maximum time in seconds for kube-proxy to have rules."""
_REMOVAL_S = 10.0
"""Of the time in seconds that remains, what is for all else but nftlb: it was told to end, too, and may hang."""

_RETRY_S = 1.0
"""The pause before the NftlbNode is to be deleted again."""

_log = structlog.get_logger()


class ShutdownReason(Enum):
    """The reason that the agent stops."""

    RESTART = auto()
    """It comes back, or another one: all stays."""
    UNINSTALL = auto()
    """Its DaemonSet is deleted."""
    MOVE = auto()
    """Its DaemonSet no longer selects the node, and kube-proxy has rules for all Services there."""


async def shutdown_reason(
    daemon_set: OwnDaemonSet | None,
    own_node: OwnNode,
    rules: ProxyRules,
    ports: Ports,
    clock: Clock,
    free_ports: Callable[[], Awaitable[None]],
    *,
    proxy_gone: bool,
) -> ShutdownReason:
    """Return why the agent stops. For a node that it leaves, wait until a kube-proxy that lives has rules.

    ``proxy_gone`` says that there were no rules of kube-proxy when the agent last looked. ``free_ports`` stops
    listening on kube-proxy's ports.
    """
    if daemon_set is None:
        return ShutdownReason.RESTART
    if await daemon_set.is_deleted():
        return ShutdownReason.UNINSTALL
    if not await daemon_set.deselects(own_node):
        return ShutdownReason.RESTART
    families = _families(own_node)
    _log.info("the DaemonSet no longer selects this node: waiting for rules of kube-proxy", families=families)
    if not proxy_gone:
        # kube-proxy may have come, and written its rules, before the agent was told to go. That it lives can be known
        # by its ports, which it tries again every few seconds.
        await free_ports()
    if await until_proxy_serves(rules, ports, families, clock, HAND_OVER_S, gone=proxy_gone):
        return ShutdownReason.MOVE
    message = "no kube-proxy has taken over, so the rules stay: run `kube-nftlb clean` here once another proxy serves"
    _log.warning(message, waited_s=HAND_OVER_S)
    return ShutdownReason.RESTART


async def clean_up(
    why: ShutdownReason, kube: Kube, own_node: OwnNode, settings: NftlbSettings, nft: Nft, within_s: float
) -> None:
    """Remove all of kube-nftlb from this node, unless the agent only restarts. After ``within_s`` it is killed.

    Raises KernelError if a table cannot be removed.
    """
    if why is ShutdownReason.RESTART:
        return
    await clean(settings, nft, min(max(within_s - _REMOVAL_S, 1.0), NFTLB_S))
    if why is ShutdownReason.UNINSTALL:
        _log.info("the DaemonSet is deleted: nothing of kube-nftlb is left on this node")
        return
    try:
        async with asyncio.timeout(_REMOVAL_S):
            await _delete_report(kube, own_node.name)
    except TimeoutError:
        message = f"farms wait for this node, which has none any more: run `kubectl delete nftlbnode {own_node.name}`"
        _log.warning(message)
        return
    _log.info("kube-proxy has taken over: nothing of kube-nftlb is left on this node")


async def _delete_report(kube: Kube, name: str) -> None:
    """Delete the NftlbNode, for which farms wait; try again until the API server has done it."""
    while True:
        try:
            return await kube.delete(NFTLB_NODES, name)
        except errors.NotFoundError:
            return None
        except (errors.KubeError, errors.KubeUnreachableError):
            await asyncio.sleep(_RETRY_S)


def _families(own_node: OwnNode) -> list[str]:
    """Return the families of nftables in which the node has addresses."""
    addresses = own_node.last.status.addresses if own_node.last is not None else ()
    internal = [each.address for each in addresses if each.type == "InternalIP"]
    return sorted({"ip6" if ":" in address else "ip" for address in internal}) or ["ip"]
