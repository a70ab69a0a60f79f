"""Have other nodes take the load balancer addresses of a node that drains, by an annotation of its Node."""

import asyncio
import time
from typing import Final

from kube_nftlb import errors, names
from kube_nftlb.commands.cluster.queries import get_or_none, pools_or_none
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NFTLB_NODES, NODES, JsonObject
from kube_nftlb.prose import counted

_PATIENCE_S: Final = 10.0
"""How long to wait until others have the addresses. It takes them less than a second."""
_LOOK_EVERY_S: Final = 0.2


async def in_use(kube: Kube, node: JsonObject) -> bool:
    """Return True if a node may announce addresses, or has handed them over, as far as the user may know.

    Those of pools that are gone stay with their Services.
    """
    metadata = node["metadata"]
    drains = names.ANNOTATION_NODE_DRAINS in (metadata.get("annotations") or {})
    return drains or bool(await pools_or_none(kube)) or await _announced(kube, metadata["name"]) > 0


async def hand_over(kube: Kube, node: str) -> str:
    """Have other nodes take the addresses of a node, wait until they have, and return what came of it."""
    if not await _annotate(kube, node, "true"):
        return f"node {node} keeps its load balancer addresses: you may not patch Nodes"
    began = time.monotonic()
    while number := await _announced(kube, node):
        if time.monotonic() > began + _PATIENCE_S:
            still = counted(number, "address", "addresses")
            return f"node {node} still announces {still}, which no other node can serve"
        await asyncio.sleep(_LOOK_EVERY_S)
    return f"node {node} announces no addresses"


async def take_back(kube: Kube, node: str) -> None:
    """Let a node announce addresses again."""
    await _annotate(kube, node, None)


async def _annotate(kube: Kube, node: str, value: str | None) -> bool:
    try:
        await kube.patch(NODES, node, {"metadata": {"annotations": {names.ANNOTATION_NODE_DRAINS: value}}})
    except errors.KubeError as error:
        if not error.is_refusal:
            raise
        return False
    return True


async def _announced(kube: Kube, node: str) -> int:
    report = await get_or_none(kube, NFTLB_NODES, node) or {}
    number: int = ((report.get("status") or {}).get("addresses") or {}).get("number") or 0
    return number
