"""The steps that an nftlb without our patches cannot do without harm to other farms (docs/nftlb-defects.md). Pure.

With the patches nothing here is asked: a step changes one farm, and nothing else in the kernel. Without them nftlb has
to write all its rules anew after some steps (``Mirror``), or gets a farm as a new one (``plan``).
"""

from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveAddress, RemoveFarm, Step, restarts


def drops_table(before: objects.Farm | None, step: Step) -> bool:
    """Return True if nftlb drops the table ip6 in this step, with the rules of all farms."""
    if before is None or not before.ipv6 or before.ingress:
        return False
    return restarts(before, step) or isinstance(step, RemoveFarm | RemoveAddress)


def leaves_rules(before: objects.Farm | None, step: Step) -> bool:
    """Return True if nft refuses nftlb's commands for this removal, and the rules stay."""
    removal = isinstance(step, RemoveFarm | RemoveAddress)
    return removal and before is not None and before.persistent and len(before.addresses) > 1


def cannot_restart(before: objects.Farm, farm: objects.Farm) -> bool:
    """Return True if nftlb would have to restart a farm with persistence and several addresses to change it."""
    several = len(before.addresses) > 1
    return several and (before.persistent or farm.persistent) and restarts(before, PutFarm(farm))


def cannot_be_put_down(farm: objects.Farm) -> bool:
    """Return True if putting a farm down harms others, or fails."""
    return (farm.ipv6 and not farm.ingress) or (farm.persistent and len(farm.addresses) > 1)


def removed_first(farm: objects.Farm) -> list[RemoveAddress]:
    """Return the steps before the removal of a farm: with more than one address nftlb leaves its chains behind.

    With persistence it leaves something behind in any case, and all rules are written anew.
    """
    if farm.persistent:
        return []
    return [RemoveAddress(farm.name, address) for address in list(farm.addresses)[1:]]
