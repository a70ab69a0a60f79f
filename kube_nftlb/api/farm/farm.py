"""The NftlbFarm object."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from kube_nftlb.api import rules
from kube_nftlb.api.base import ForeignModel, Metadata
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

    @model_validator(mode="after")
    def _check_namespaces(self) -> Self:
        """Only what the operator has checked against ReferenceGrants may reach into another namespace."""
        for each in self.spec.backends_from:
            if each.namespace not in ("", self.metadata.namespace) and not self.metadata.made_of_route:
                what = f"spec.backendsFrom refers to the Service {each.full_name} of another namespace"
                raise ValueError(f"{what}, which only farms of routes of Gateway API may: use a TCPRoute or UDPRoute")
        return self
