"""The parts of a discovery.k8s.io/v1 EndpointSlice from which backends are built."""

from kube_nftlb.api.base import ForeignModel, Metadata, OptionalList


class EndpointConditions(ForeignModel):
    """endpoints[].conditions; the properties of Endpoint have the defaults of the EndpointSlice API."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(ForeignModel):
    """endpoints[].targetRef."""

    kind: str = ""
    name: str = ""


class Hint(ForeignModel):
    """endpoints[].hints.forZones[] and forNodes[]."""

    name: str


class Hints(ForeignModel):
    """endpoints[].hints."""

    for_zones: OptionalList[Hint] = ()
    for_nodes: OptionalList[Hint] = ()


class Endpoint(ForeignModel):
    """endpoints[]."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    node_name: str | None = None
    target_ref: TargetRef | None = None
    hints: Hints | None = None

    @property
    def ready(self) -> bool:
        """Return the condition ready, by default true."""
        return self.conditions.ready is not False

    @property
    def serving(self) -> bool:
        """Return the condition serving, by default true."""
        return self.conditions.serving is not False

    @property
    def terminating(self) -> bool:
        """Return the condition terminating, by default false."""
        return self.conditions.terminating is True


class EndpointPort(ForeignModel):
    """ports[]."""

    name: str | None = None
    protocol: str = "TCP"
    port: int | None = None


class EndpointSlice(ForeignModel):
    """An EndpointSlice object."""

    metadata: Metadata
    address_type: str
    endpoints: OptionalList[Endpoint] = ()
    ports: OptionalList[EndpointPort] = ()
