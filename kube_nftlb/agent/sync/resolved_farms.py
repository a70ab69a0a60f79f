"""Farms with the backends that they refer to, as long as they may be needed again. Pure: no I/O."""

from collections import OrderedDict

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm

_BACKENDS_MAX = 16_384
"""In about 16 MB: as many as the largest farm has, or those of the farms that are applied and not verified yet."""


class ResolvedFarms:
    """The farms that were resolved last: each is needed several times in a pass, and to be verified."""

    def __init__(self, backends_max: int = _BACKENDS_MAX) -> None:
        """``backends_max`` limits the backends of all of them; one farm may have more."""
        self._backends_max = backends_max
        self._farms: OrderedDict[FarmKey, Farm] = OrderedDict()
        self._backends = 0

    def get(self, key: FarmKey) -> Farm | None:
        """Return a farm, or None if it has to be resolved."""
        return self._farms.get(key)

    def put(self, key: FarmKey, farm: Farm) -> None:
        """Keep a farm, instead of those that were resolved first if there are too many."""
        self.forget(key)
        self._farms[key] = farm
        # So that many farms without backends are too many, too.
        self._backends += 1 + len(farm.spec.backends)
        while self._backends > self._backends_max and len(self._farms) > 1:
            self.forget(next(iter(self._farms)))

    def forget(self, key: FarmKey) -> None:
        """Forget a farm whose spec or endpoints have changed."""
        if (farm := self._farms.pop(key, None)) is not None:
            self._backends -= 1 + len(farm.spec.backends)
