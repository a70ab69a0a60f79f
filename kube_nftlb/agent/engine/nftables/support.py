"""The reasons that the engine of nftables maps cannot serve a farm. Pure: no I/O."""

from kube_nftlb.agent.endpoints import shares
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.api.farm import engines
from kube_nftlb.prose import counted

ELEMENTS_MAX = 1 << 18
"""The maximum number of elements of a farm: each listener has one for each endpoint, times its part of the weights."""


def unsupported(farm: NodeFarm) -> Blocker | None:
    """Return why this engine cannot serve a farm, or None if it can."""
    spec = farm.spec
    fields = {name: getattr(spec, name) for name in ("mode", "persistence", "mark", "protocol")}
    if why := engines.lacking(fields):
        return Blocker("Unsupported", f"{why}; use the engine nftlb")
    if spec.protocol == "All" and any(each.mark is not None for each in spec.backend_options):
        message = "the engine nftables does not set marks of backends with protocol All; use the engine nftlb"
        return Blocker("Unsupported", message)
    listeners = sum(1 for _ in farm.listeners)
    # Clients of the node may have others than those outside.
    lists = (backends for each in farm.groups or (farm,) for backends in each.candidates)
    numbers = sum(sum(shares.exact_shares([each.weight for each in backends])) for backends in lists)
    drawn = sum(shares.of_weights([each.weight for each in farm.groups]))
    if (elements := listeners * (numbers + drawn)) > ELEMENTS_MAX:
        groups = f", in groups with {drawn} numbers to draw," if drawn else ""
        on = counted(listeners, "listener")
        message = f"{on} with endpoints of a total weight of {numbers}{groups} make {elements} elements"
        return Blocker("Unsupported", f"{message}; the engine nftables allows {ELEMENTS_MAX}")
    return None
