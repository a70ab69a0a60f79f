"""The settings of operator, agent and nftlb, from environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from kube_nftlb import errors, label_selector
from kube_nftlb.api.reports import INTERVAL_S
from kube_nftlb.environment import (
    IpNetwork,
    ListenAddress,
    NumberRanges,
    choice,
    listen_address,
    networks,
    number,
    number_ranges,
    seconds,
    server_addresses,
    words,
)
from kube_nftlb.label_selector import LabelSelector
from kube_nftlb.limits import NamespaceLimits

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["json", "console"]

DefaultMode = Literal["snat", "dnat"]

_LOG_LEVELS: dict[str, LogLevel] = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARNING", "ERROR": "ERROR"}
DefaultEngine = Literal["nftlb", "nftables", "auto"]

_DEFAULT_ENGINES: dict[str, DefaultEngine] = {"nftlb": "nftlb", "nftables": "nftables", "auto": "auto"}
_DEFAULT_MODES: dict[str, DefaultMode] = {"snat": "snat", "dnat": "dnat"}
_ENGINES = ("nftables", "nftlb")
_HELPERS = ("amanda", "ftp", "h323", "irc", "netbios-ns", "pptp", "sane", "sip", "snmp", "tftp")
_MONTH_S = 30 * 86400
_PER_FARM = "KUBE_NFTLB_METRICS_PER_FARM"
_SWITCH = {"on": True, "off": False}
_LOG_FORMATS: dict[str, LogFormat] = {"json": "json", "console": "console"}


@dataclass(frozen=True)
class CommonSettings:
    """Settings of both operator and agent. Defaults are in parentheses."""

    metrics_address: ListenAddress
    """KUBE_NFTLB_METRICS_ADDRESS: address of the metrics server, ``host:port`` or ``[IPv6]:port`` (127.0.0.1:9195)."""
    health_address: ListenAddress
    """KUBE_NFTLB_HEALTH_ADDRESS: address of /healthz, /livez and /readyz, as ``host:port`` or ``[IPv6]:port``.

    ``[::]`` stands for all addresses of both families. The default is 127.0.0.1:9196 for the operator and [::]:10256,
    the port of kube-proxy's health checks, for the agent.
    """
    api_servers: tuple[ListenAddress, ...]
    """KUBE_NFTLB_API_SERVERS: comma-separated ``host:port`` of further API servers (none).

    They are used while that of the kubeconfig or of KUBERNETES_SERVICE_HOST cannot be reached, before the endpoints of
    the Service kubernetes.
    """
    log_level: LogLevel
    """KUBE_NFTLB_LOG_LEVEL: DEBUG, INFO, WARNING or ERROR (INFO)."""
    log_format: LogFormat
    """KUBE_NFTLB_LOG_FORMAT: json, one object per line, or console, for reading (json)."""


def limits(environ: Mapping[str, str]) -> NamespaceLimits:
    """Read what a namespace may have; operator and agents must agree on it.

    KUBE_NFTLB_SERVICE_PORTS_MAX: how many ports of a Service are served, 1 to 32768 (1024).
    KUBE_NFTLB_NAMESPACE_FARMS_MAX: how many farms a namespace may have, 1 to 1000000 (10000).
    KUBE_NFTLB_NAMESPACE_POLICIES_MAX: how many NftlbPolicies a namespace may have, 1 to 100000 (256).
    KUBE_NFTLB_NAMESPACE_POLICY_RANGES_MAX: how many address ranges these may have, 1 to 10000000 (65536).
    KUBE_NFTLB_FARM_ELEMENTS_MAX: how many elements a farm may have in the nftables of a node, 1 to 100000000 (262144).
    KUBE_NFTLB_NAMESPACE_ELEMENTS_MAX: the same of a namespace, 1 to 100000000 (1000000).
    """
    defaults = NamespaceLimits()
    return NamespaceLimits(
        number(environ, "KUBE_NFTLB_SERVICE_PORTS_MAX", defaults.service_ports, low=1, high=32768),
        number(environ, "KUBE_NFTLB_NAMESPACE_FARMS_MAX", defaults.farms, low=1, high=1_000_000),
        number(environ, "KUBE_NFTLB_NAMESPACE_POLICIES_MAX", defaults.policies, low=1, high=100_000),
        number(environ, "KUBE_NFTLB_NAMESPACE_POLICY_RANGES_MAX", defaults.policy_ranges, low=1, high=10_000_000),
        number(environ, "KUBE_NFTLB_FARM_ELEMENTS_MAX", defaults.farm_elements, low=1, high=100_000_000),
        number(environ, "KUBE_NFTLB_NAMESPACE_ELEMENTS_MAX", defaults.elements, low=1, high=100_000_000),
    )


@dataclass(frozen=True)
class OperatorSettings(CommonSettings):
    """Settings of the operator."""

    relist_s: float
    """KUBE_NFTLB_RELIST_SECONDS: interval of complete lists, 10 to 86400 (300)."""
    status_s: float
    """KUBE_NFTLB_STATUS_SECONDS: how long the status of a farm waits for nodes to report, 0 to 60 (0.6).

    Then it says which ones it waits for.
    """
    statuses_per_s: float
    """KUBE_NFTLB_STATUSES_PER_SECOND: statuses of farms written at most, 1 to 10000 (500).

    Fewer are written while the API server is slow, and in clusters of more than 40 nodes.
    """
    not_programmed_s: float
    """KUBE_NFTLB_NOT_PROGRAMMED_SECONDS: how long nodes may take to program a change of a farm, 1 to 3600 (30).

    After that an Event on the farm and its Service names them.
    """
    default_mode: DefaultMode
    """KUBE_NFTLB_DEFAULT_MODE: snat, or dnat so that backends see clients' addresses as with kube-proxy (snat)."""
    default_engine: DefaultEngine
    """KUBE_NFTLB_DEFAULT_ENGINE: nftlb, nftables, or auto: nftables where it can, nftlb for the rest (nftlb)."""
    external_ips: bool
    """KUBE_NFTLB_EXTERNAL_IPS: on or off: whether spec.externalIPs of Services are served (on).

    Corresponds to kube-proxy's feature gate AllowServiceExternalIPs.
    """
    external_ip_ranges: tuple[IpNetwork, ...]
    """KUBE_NFTLB_EXTERNAL_IP_RANGES: comma-separated CIDRs of spec.externalIPs that are served (all)."""
    pod_cidrs: tuple[IpNetwork, ...]
    """KUBE_NFTLB_POD_CIDRS: comma-separated CIDRs of all pods, beside spec.podCIDRs of the Nodes (none).

    Their addresses are not served as external IPs.
    """
    api_server: str
    """KUBERNETES_SERVICE_HOST: address of the API server, set in every pod; not served as an external IP either."""
    source_address_ranges: tuple[IpNetwork, ...]
    """KUBE_NFTLB_SOURCE_ADDRESS_RANGES: comma-separated CIDRs allowed in the annotation source-addr (all)."""
    annotation_marks: NumberRanges
    """KUBE_NFTLB_ANNOTATION_MARKS: marks that annotations may ask for, such as 0x10000-0xf0000, or all (none)."""
    annotation_queues: NumberRanges
    """KUBE_NFTLB_ANNOTATION_QUEUES: netfilter queues that annotations may ask for, such as 0-3, or all (none)."""
    annotation_helpers: frozenset[str]
    """KUBE_NFTLB_ANNOTATION_HELPERS: comma-separated conntrack helpers that annotations may ask for, or none (all)."""
    annotation_engines: frozenset[str]
    """KUBE_NFTLB_ANNOTATION_ENGINES: comma-separated engines that annotations may ask for, or none (all)."""
    limits: NamespaceLimits
    readiness_gate: bool
    """KUBE_NFTLB_READINESS_GATE: on or off: whether the readiness gate of Pods is set (off)."""
    service_status: bool
    """KUBE_NFTLB_SERVICE_STATUS: on or off: whether Services get the condition kube-nftlb.io/Programmed (off)."""
    leader_election: bool
    """KUBE_NFTLB_LEADER_ELECTION: on or off. If on, only the replica that holds a Lease writes (off)."""
    namespace: str
    """KUBE_NFTLB_NAMESPACE: namespace of that Lease (kube-nftlb-system)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Empty variables count as unset. Raises UsageError for invalid values."""
        return cls(
            metrics_address=listen_address(environ, "KUBE_NFTLB_METRICS_ADDRESS", "127.0.0.1:9195"),
            health_address=listen_address(environ, "KUBE_NFTLB_HEALTH_ADDRESS", "127.0.0.1:9196"),
            api_servers=server_addresses(environ, "KUBE_NFTLB_API_SERVERS"),
            log_level=log_level(environ),
            log_format=log_format(environ),
            relist_s=seconds(environ, "KUBE_NFTLB_RELIST_SECONDS", 300, low=10, high=86400),
            status_s=seconds(environ, "KUBE_NFTLB_STATUS_SECONDS", 0.6, low=0, high=60),
            statuses_per_s=number(environ, "KUBE_NFTLB_STATUSES_PER_SECOND", 500, low=1, high=10000),
            not_programmed_s=seconds(environ, "KUBE_NFTLB_NOT_PROGRAMMED_SECONDS", 30, low=1, high=3600),
            default_mode=choice(environ, "KUBE_NFTLB_DEFAULT_MODE", "snat", _DEFAULT_MODES),
            default_engine=choice(environ, "KUBE_NFTLB_DEFAULT_ENGINE", "nftlb", _DEFAULT_ENGINES),
            external_ips=choice(environ, "KUBE_NFTLB_EXTERNAL_IPS", "on", _SWITCH),
            external_ip_ranges=networks(environ, "KUBE_NFTLB_EXTERNAL_IP_RANGES", "0.0.0.0/0,::/0"),
            pod_cidrs=networks(environ, "KUBE_NFTLB_POD_CIDRS", ""),
            api_server=environ.get("KUBERNETES_SERVICE_HOST") or "",
            source_address_ranges=networks(environ, "KUBE_NFTLB_SOURCE_ADDRESS_RANGES", "0.0.0.0/0,::/0"),
            annotation_marks=number_ranges(environ, "KUBE_NFTLB_ANNOTATION_MARKS", low=2, high=0xFFFF000),
            annotation_queues=number_ranges(environ, "KUBE_NFTLB_ANNOTATION_QUEUES", low=0, high=65535),
            annotation_helpers=words(environ, "KUBE_NFTLB_ANNOTATION_HELPERS", _HELPERS),
            annotation_engines=words(environ, "KUBE_NFTLB_ANNOTATION_ENGINES", _ENGINES),
            limits=limits(environ),
            readiness_gate=choice(environ, "KUBE_NFTLB_READINESS_GATE", "off", _SWITCH),
            service_status=choice(environ, "KUBE_NFTLB_SERVICE_STATUS", "off", _SWITCH),
            leader_election=choice(environ, "KUBE_NFTLB_LEADER_ELECTION", "off", _SWITCH),
            namespace=namespace(environ),
        )


@dataclass(frozen=True)
class NftlbSettings:
    """Settings that the agent, ``kube-nftlb nftlb-daemon`` and ``kube-nftlb nftlb`` share on a node."""

    run_dir: Path
    """KUBE_NFTLB_RUN_DIR: directory of nftlb's key, shared with nftlb, best in memory (/run/kube-nftlb)."""
    state_dir: Path
    """KUBE_NFTLB_STATE_DIR: directory of nftlb's startup file and the changes made to pods (the run directory).

    It should survive restarts of both programs, but not of the machine.
    """
    port: int
    """KUBE_NFTLB_NFTLB_PORT: TCP port of nftlb on 127.0.0.1 (5555)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Empty variables count as unset. Raises UsageError for invalid values."""
        port = environ.get("KUBE_NFTLB_NFTLB_PORT") or "5555"
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise errors.UsageError(f"KUBE_NFTLB_NFTLB_PORT={port!r}: must be a port from 1 to 65535")
        run_dir = environ.get("KUBE_NFTLB_RUN_DIR") or "/run/kube-nftlb"
        return cls(Path(run_dir), Path(environ.get("KUBE_NFTLB_STATE_DIR") or run_dir), int(port))

    @property
    def url(self) -> str:
        """The URL of nftlb's API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def key_file(self) -> Path:
        """The file with nftlb's key, which changes whenever it starts."""
        return self.run_dir / "nftlb.key"

    @property
    def startup_file(self) -> Path:
        """The file that nftlb loads before it responds: the farms that the agent last verified in the kernel."""
        return self.state_dir / "nftlb.json"

    @property
    def nftables_file(self) -> Path:
        """The file from which the engine nftables restores farms before the API server answers."""
        return self.state_dir / "nftables.json"

    @property
    def pods_file(self) -> Path:
        """The file with the changes made to pods for farms in mode dsr, and their state before."""
        return self.state_dir / "dsr.json"


@dataclass(frozen=True)
class ConntrackSettings:
    """Settings of the kernel's connection tracking; 0 keeps the kernel's. The defaults are kube-proxy's."""

    max_per_core: int
    """KUBE_NFTLB_CONNTRACK_MAX_PER_CORE: connections that are tracked per CPU core, never less than now (32768).

    Corresponds to kube-proxy's --conntrack-max-per-core.
    """
    minimum: int
    """KUBE_NFTLB_CONNTRACK_MIN: connections that are tracked at least, however few cores (131072; --conntrack-min)."""
    tcp_established_s: int
    """KUBE_NFTLB_CONNTRACK_TCP_ESTABLISHED_SECONDS: timeout of idle TCP connections (86400).

    Corresponds to kube-proxy's --conntrack-tcp-timeout-established.
    """
    tcp_close_wait_s: int
    """KUBE_NFTLB_CONNTRACK_TCP_CLOSE_WAIT_SECONDS: timeout of TCP connections in state CLOSE_WAIT (3600).

    Corresponds to kube-proxy's --conntrack-tcp-timeout-close-wait.
    """
    tcp_be_liberal: bool
    """KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL: on or off. If on, TCP packets outside the window are translated too (off).

    Otherwise they reach clients untranslated, who reset the connection. Corresponds to kube-proxy's
    --conntrack-tcp-be-liberal.
    """
    count_bytes: bool
    """Count the bytes of connections from then on, as metrics of farms need; False keeps the kernel's setting."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Raises UsageError for invalid values."""
        return cls(
            max_per_core=number(environ, "KUBE_NFTLB_CONNTRACK_MAX_PER_CORE", 32768, low=0, high=1 << 24),
            minimum=number(environ, "KUBE_NFTLB_CONNTRACK_MIN", 131072, low=0, high=1 << 28),
            tcp_established_s=number(
                environ, "KUBE_NFTLB_CONNTRACK_TCP_ESTABLISHED_SECONDS", 86400, low=0, high=_MONTH_S
            ),
            tcp_close_wait_s=number(environ, "KUBE_NFTLB_CONNTRACK_TCP_CLOSE_WAIT_SECONDS", 3600, low=0, high=_MONTH_S),
            tcp_be_liberal=choice(environ, "KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL", "off", _SWITCH),
            count_bytes=choice(environ, _PER_FARM, "off", _SWITCH),
        )


@dataclass(frozen=True)
class TrafficSettings:
    """Settings of the metrics of farms and backends."""

    farms: int
    """KUBE_NFTLB_METRICS_FARMS_MAX: how many farms have series on a node, 1 to 1000 (20)."""
    backends: int
    """KUBE_NFTLB_METRICS_FARM_BACKENDS_MAX: how many backends of each have, 0 to 100 (10)."""
    selector: LabelSelector
    """KUBE_NFTLB_METRICS_FARM_SELECTOR: label selector of these farms (all)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Read the settings; None if KUBE_NFTLB_METRICS_PER_FARM is off, the default. Raises UsageError."""
        if not choice(environ, _PER_FARM, "off", _SWITCH):
            return None
        selector = environ.get("KUBE_NFTLB_METRICS_FARM_SELECTOR") or ""
        try:
            parsed = label_selector.parse(selector)
        except ValueError as error:
            raise errors.UsageError(f"KUBE_NFTLB_METRICS_FARM_SELECTOR={selector!r}: {error}") from None
        return cls(
            number(environ, "KUBE_NFTLB_METRICS_FARMS_MAX", 20, low=1, high=1000),
            number(environ, "KUBE_NFTLB_METRICS_FARM_BACKENDS_MAX", 10, low=0, high=100),
            parsed,
        )


@dataclass(frozen=True)
class AgentSettings(CommonSettings):
    """Settings of the agent."""

    node_name: str
    """KUBE_NFTLB_NODE_NAME: name of the Node that the agent runs on; required."""
    sync_overdue_s: float
    """KUBE_NFTLB_SYNC_OVERDUE_SECONDS: lag after which the agent reports unhealthy, 1 to 3600 (60)."""
    report_s: float
    """KUBE_NFTLB_REPORT_SECONDS: interval of reports in a cluster of one node, 0.01 to 60 (0.25).

    It grows with the square root of the number of nodes.
    """
    proxy_mode_address: ListenAddress | None
    """KUBE_NFTLB_PROXY_MODE_ADDRESS: address of /proxyMode, ``host:port`` (none).

    Tests of Kubernetes ask for it on kube-proxy's 127.0.0.1:10249.
    """
    probe_address: ListenAddress | None
    """KUBE_NFTLB_PROBE_ADDRESS: address of the kubelet's probes beside that of the metrics (none).

    On a loopback address nobody but the node can keep the kubelet from it.
    """
    nftlb: NftlbSettings
    pod_cidrs: tuple[IpNetwork, ...]
    """KUBE_NFTLB_POD_CIDRS: comma-separated CIDRs of this node's pods (spec.podCIDRs of the Node)."""
    node_port_addresses: tuple[IpNetwork, ...] | None
    """KUBE_NFTLB_NODE_PORT_ADDRESSES: node addresses on which node ports listen (primary).

    Either ``primary``, the InternalIPs of the Node, or comma-separated CIDRs, the node's addresses in them; for a
    family without a CIDR, all addresses of that family.
    """
    conntrack: ConntrackSettings
    traffic: TrafficSettings | None
    """KUBE_NFTLB_METRICS_PER_FARM: on or off. If on, the busiest farms and their backends have series (off)."""
    namespace: str
    """KUBE_NFTLB_NAMESPACE: namespace of the agent's DaemonSet (kube-nftlb-system)."""
    daemon_set: str | None
    """KUBE_NFTLB_DAEMON_SET: DaemonSet that runs the agent (none).

    When it is deleted, the agent removes its rules before it exits; when it no longer selects the node, once kube-proxy
    has rules there. Without one, they always stay.
    """
    kube_proxy_cleanup: bool
    """KUBE_NFTLB_KUBE_PROXY_CLEANUP: whether rules that kube-proxy left on the node are removed, on or off (on)."""
    limits: NamespaceLimits
    sysctl_dir: Path
    """KUBE_NFTLB_SYSCTL_DIR: writable mount of /proc/sys (/proc/sys)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Empty variables count as unset. Raises UsageError for invalid values."""
        node_name = environ.get("KUBE_NFTLB_NODE_NAME") or ""
        if not node_name:
            raise errors.UsageError("KUBE_NFTLB_NODE_NAME must be set to the name of the Node that this agent runs on")
        ports = "KUBE_NFTLB_NODE_PORT_ADDRESSES"
        return cls(
            metrics_address=listen_address(environ, "KUBE_NFTLB_METRICS_ADDRESS", "127.0.0.1:9195"),
            health_address=listen_address(environ, "KUBE_NFTLB_HEALTH_ADDRESS", "[::]:10256"),
            api_servers=server_addresses(environ, "KUBE_NFTLB_API_SERVERS"),
            log_level=log_level(environ),
            log_format=log_format(environ),
            node_name=node_name,
            sync_overdue_s=seconds(environ, "KUBE_NFTLB_SYNC_OVERDUE_SECONDS", 60, low=1, high=3600),
            report_s=seconds(environ, "KUBE_NFTLB_REPORT_SECONDS", INTERVAL_S, low=0.01, high=60),
            proxy_mode_address=_optional_address(environ, "KUBE_NFTLB_PROXY_MODE_ADDRESS"),
            probe_address=_optional_address(environ, "KUBE_NFTLB_PROBE_ADDRESS"),
            nftlb=NftlbSettings.from_environment(environ),
            pod_cidrs=networks(environ, "KUBE_NFTLB_POD_CIDRS", ""),
            node_port_addresses=(
                None if (environ.get(ports) or "primary") == "primary" else networks(environ, ports, "")
            ),
            conntrack=ConntrackSettings.from_environment(environ),
            traffic=TrafficSettings.from_environment(environ),
            namespace=namespace(environ),
            daemon_set=environ.get("KUBE_NFTLB_DAEMON_SET") or None,
            kube_proxy_cleanup=choice(environ, "KUBE_NFTLB_KUBE_PROXY_CLEANUP", "on", _SWITCH),
            limits=limits(environ),
            sysctl_dir=Path(environ.get("KUBE_NFTLB_SYSCTL_DIR") or "/proc/sys"),
        )


def _optional_address(environ: Mapping[str, str], name: str) -> ListenAddress | None:
    return listen_address(environ, name, "") if environ.get(name) else None


def namespace(environ: Mapping[str, str]) -> str:
    """Read KUBE_NFTLB_NAMESPACE."""
    return environ.get("KUBE_NFTLB_NAMESPACE") or "kube-nftlb-system"


def log_level(environ: Mapping[str, str]) -> LogLevel:
    """Read KUBE_NFTLB_LOG_LEVEL."""
    return choice(environ, "KUBE_NFTLB_LOG_LEVEL", "INFO", _LOG_LEVELS)


def log_format(environ: Mapping[str, str]) -> LogFormat:
    """Read KUBE_NFTLB_LOG_FORMAT."""
    return choice(environ, "KUBE_NFTLB_LOG_FORMAT", "json", _LOG_FORMATS)
