"""The parts of a v1 Service that decide about its farms."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import ForeignModel, Metadata, OptionalList


class ServicePort(ForeignModel):
    """spec.ports[]."""

    name: str | None = None
    protocol: str = "TCP"
    port: int
    target_port: int | str | None = None


class ClientIPConfig(ForeignModel):
    """spec.sessionAffinityConfig.clientIP."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(ForeignModel):
    """spec.sessionAffinityConfig."""

    client_ip: Annotated[ClientIPConfig | None, Field(alias="clientIP")] = None


class ServiceSpec(ForeignModel):
    """spec."""

    type: str = "ClusterIP"
    cluster_ip: Annotated[str, Field(alias="clusterIP")] = ""
    cluster_ips: Annotated[OptionalList[str], Field(alias="clusterIPs")] = ()
    ports: OptionalList[ServicePort] = ()
    selector: dict[str, str] | None = None
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None


class Service(ForeignModel):
    """A Service object."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()
