"""The parts of a v1 Service from which its farms are built."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from kube_nftlb.api.base import ForeignModel, Metadata, OptionalList


class ServicePort(ForeignModel):
    """spec.ports[]."""

    name: str | None = None
    protocol: str = "TCP"
    port: int
    node_port: int | None = None
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
    external_ips: Annotated[OptionalList[str], Field(alias="externalIPs")] = ()
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    load_balancer_class: str | None = None
    load_balancer_ip: Annotated[str | None, Field(alias="loadBalancerIP")] = None
    ip_families: OptionalList[str] = ()
    ip_family_policy: str | None = None
    load_balancer_source_ranges: OptionalList[str] = ()
    health_check_node_port: int | None = None
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None


class LoadBalancerIngress(ForeignModel):
    """status.loadBalancer.ingress[]."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None


class LoadBalancerStatus(ForeignModel):
    """status.loadBalancer."""

    ingress: OptionalList[LoadBalancerIngress] = ()


class ServiceCondition(ForeignModel):
    """status.conditions[]."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    """Empty if whoever wrote the condition left it out: the API server serves null then."""


class ServiceStatus(ForeignModel):
    """status."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: OptionalList[ServiceCondition] = ()


class Service(ForeignModel):
    """A Service object."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()
