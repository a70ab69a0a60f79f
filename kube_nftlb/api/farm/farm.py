"""The NftlbFarm object."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from kube_nftlb.api import rules
from kube_nftlb.api.base import ForeignModel, Metadata
from kube_nftlb.api.farm.backends_from import BackendsFrom
from kube_nftlb.api.farm.spec import FarmSpec
from kube_nftlb.api.farm.status import FarmStatus

_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class Farm(ForeignModel):
    """An NftlbFarm object."""

    metadata: Metadata
    spec: FarmSpec
    status: FarmStatus = FarmStatus()
    unknown: Annotated[tuple[str, ...], Field(exclude=True)] = ()
    """Fields of its spec that this program does not know, where it looks for them (``agent.informers``)."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Name and namespace become part of names in nftlb, separated by a dot."""
        rules.check([rules.FARM_NAME], self.metadata.name)
        for what, name in (("name", self.metadata.name), ("namespace", self.metadata.namespace)):
            if not _OBJECT_NAME.fullmatch(name):
                raise ValueError(f"{what} {name[:63]!r} must consist of lower-case letters, digits and dashes")
        return self

    @property
    def trespass(self) -> str:
        """Say which reference into another namespace the farm may not have; empty: none.

        Only what the operator has checked against ReferenceGrants may reach there.
        """
        for each in self.spec.backends_from:
            if self._trespasses(each):
                what = f"spec.backendsFrom refers to the Service {each.full_name} of another namespace"
                return f"{what}, which only farms of routes of Gateway API may: use a TCPRoute or UDPRoute"
        return ""

    def without_trespass(self) -> "Farm":
        """Return the farm as agents serve it: references that it may not have refuse their share."""
        if not self.trespass:
            return self
        groups = tuple(
            BackendsFrom(weight=each.weight, refuse=True) if self._trespasses(each) else each
            for each in self.spec.backends_from
        )
        return self.model_copy(update={"spec": self.spec.model_copy(update={"backends_from": groups})})

    def _trespasses(self, group: BackendsFrom) -> bool:
        return group.namespace not in ("", self.metadata.namespace) and not self.metadata.made_of_route
