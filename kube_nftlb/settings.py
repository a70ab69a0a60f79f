"""The settings of operator, agent and nftlb: environment variables, the chart's values, defaults and meaning."""

from pathlib import Path
from typing import Annotated, Final, Literal

from annotated_types import Interval
from pydantic import Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from kube_nftlb import label_selector
from kube_nftlb.environment import (
    Address,
    Addresses,
    Allowed,
    IpNetwork,
    ListenAddress,
    Networks,
    Number,
    NumberRanges,
    OptionalAddress,
    Seconds,
    Settings,
    Switch,
    Text,
    Variable,
    networks,
    number_ranges,
    words_of,
)
from kube_nftlb.label_selector import LabelSelector
from kube_nftlb.limits import NamespaceLimits

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["json", "console"]
DefaultMode = Literal["snat", "dnat"]
DefaultEngine = Literal["nftlb", "nftables", "auto"]

_ENGINES: Final = frozenset(("nftables", "nftlb"))
_HELPERS: Final = frozenset(("amanda", "ftp", "h323", "irc", "netbios-ns", "pptp", "sane", "sip", "snmp", "tftp"))
_MONTH_S: Final = 30 * 86400
_EVERYWHERE: Final = networks("0.0.0.0/0,::/0")
_PER_FARM: Final = Variable("KUBE_NFTLB_METRICS_PER_FARM", "metrics.perFarm.enabled")


def _node_port_addresses(text: str) -> tuple[IpNetwork, ...] | None:
    return None if text == "primary" else networks(text)


class CommonSettings(Settings):
    """Settings of both operator and agent."""

    metrics_address: Annotated[Address, Variable("KUBE_NFTLB_METRICS_ADDRESS")] = ListenAddress("127.0.0.1", 9195)
    """Address of the metrics server."""
    health_address: Annotated[Address, Variable("KUBE_NFTLB_HEALTH_ADDRESS")] = ListenAddress("127.0.0.1", 9196)
    """Address of /healthz, /livez and /readyz. `[::]` stands for all of both families."""
    api_servers: Annotated[Addresses, Variable("KUBE_NFTLB_API_SERVERS")] = ()
    """Further API servers.

    They are used while that of the kubeconfig or of KUBERNETES_SERVICE_HOST cannot be reached, before the endpoints
    of the Service `kubernetes`.
    """
    log_level: Annotated[LogLevel, Variable("KUBE_NFTLB_LOG_LEVEL", "log.level")] = "INFO"
    """Log level: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    log_format: Annotated[LogFormat, Variable("KUBE_NFTLB_LOG_FORMAT", "log.format")] = "json"
    """Log format: `json` (one object per line) or `console` (for reading)."""
    namespace: Annotated[Text, Variable("KUBE_NFTLB_NAMESPACE")] = "kube-nftlb-system"
    """Namespace of the operator's Lease and the agents' DaemonSet."""
    addresses: Annotated[Switch, Variable("KUBE_NFTLB_ADDRESSES", "addresses.enabled")] = False
    """Give Services of type LoadBalancer addresses from NftlbAddressPools, and have nodes answer ARP and NDP for them.

    These are Services with the class `kube-nftlb.io/nftlb`. The operator may then write the status of Services, and
    read pools and namespaces; the agents may read pools, and write the Leases of addresses.
    """
    limits: NamespaceLimits = NamespaceLimits()


class OperatorSettings(CommonSettings):
    """Settings of the operator."""

    relist_s: Annotated[
        Seconds, Variable("KUBE_NFTLB_RELIST_SECONDS", "operator.relistSeconds"), Interval(ge=10, le=86400)
    ] = 300
    """Interval in seconds of complete lists, which find changes that a watch missed."""
    agent_silent_s: Annotated[
        Seconds, Variable("KUBE_NFTLB_AGENT_SILENT_SECONDS", "operator.agentSilentSeconds"), Interval(ge=90, le=86400)
    ] = 180
    """Time in seconds without a report after which a node no longer counts, and is named.

    Agents report each minute.
    """
    status_s: Annotated[Seconds, Variable("KUBE_NFTLB_STATUS_SECONDS"), Interval(ge=0, le=60)] = 0.6
    """How long the status of a farm waits for nodes to report. Then it says which ones it waits for."""
    statuses_per_s: Annotated[
        Number, Variable("KUBE_NFTLB_STATUSES_PER_SECOND", "operator.statusesPerSecond"), Interval(ge=1, le=10000)
    ] = 500
    """Statuses of farms written per second at most.

    Fewer are written while the API server is slow, and with more than 40 nodes.
    """
    not_programmed_s: Annotated[
        Seconds, Variable("KUBE_NFTLB_NOT_PROGRAMMED_SECONDS", "operator.notProgrammedSeconds"), Interval(ge=1, le=3600)
    ] = 30
    """How long nodes may take to program a change, in seconds.

    Then an Event on the farm and its Service names those that are late.
    """
    default_mode: Annotated[DefaultMode, Variable("KUBE_NFTLB_DEFAULT_MODE", "defaults.mode")] = "snat"
    """Mode of Services without an annotation: `snat` (backends see the node's address) or `dnat` (backends see the
    client's address, as with kube-proxy).
    """
    default_engine: Annotated[DefaultEngine, Variable("KUBE_NFTLB_DEFAULT_ENGINE", "defaults.engine")] = "nftlb"
    """Engine of Services without an annotation: `nftlb`, `nftables` (a change takes milliseconds, however many
    Services there are), or `auto` (nftables for what it can serve, nftlb for the rest).
    """
    external_ips: Annotated[Switch, Variable("KUBE_NFTLB_EXTERNAL_IPS", "externalIPs.enabled")] = True
    """Serve `spec.externalIPs` of Services, as kube-proxy does by default until Kubernetes 1.40 (its feature gate
    AllowServiceExternalIPs). Addresses of nodes, pods, Services and the API server are never served.
    """
    external_ip_ranges: Annotated[Networks, Variable("KUBE_NFTLB_EXTERNAL_IP_RANGES", "externalIPs.ranges")] = (
        _EVERYWHERE
    )
    """CIDRs in which `spec.externalIPs` of Services are served. Default: all."""
    pod_cidrs: Annotated[Networks, Variable("KUBE_NFTLB_POD_CIDRS", "podCIDRs")] = ()
    """Pod CIDRs, if the network plugin does not use `spec.podCIDRs` of the Nodes."""
    api_server: Annotated[Text, Variable("KUBERNETES_SERVICE_HOST")] = ""
    """Address of the API server, set in every pod; not served as an external IP either."""
    source_address_ranges: Annotated[
        Networks, Variable("KUBE_NFTLB_SOURCE_ADDRESS_RANGES", "annotations.sourceAddressRanges")
    ] = _EVERYWHERE
    """CIDRs that the annotation `source-addr` may use. Default: all."""
    annotation_marks: Annotated[
        NumberRanges, number_ranges(2, 0xFFFF000), Variable("KUBE_NFTLB_ANNOTATION_MARKS", "annotations.marks")
    ] = NumberRanges()
    """Marks that the annotation `mark` of Services and Pods may ask for: numbers and ranges such as
    `0x10000-0xf0000`, or `all`. Default: none, since other programs on the nodes may read the bits.
    """
    annotation_queues: Annotated[
        NumberRanges, number_ranges(0, 65535), Variable("KUBE_NFTLB_ANNOTATION_QUEUES", "annotations.queues")
    ] = NumberRanges()
    """Netfilter queues that the annotation `queue` may ask for: numbers and ranges such as `0-3`, or `all`.

    Default: none, since the program that listens to a queue decides on the packets.
    """
    annotation_helpers: Annotated[
        frozenset[str], words_of(_HELPERS), Variable("KUBE_NFTLB_ANNOTATION_HELPERS", "annotations.helpers")
    ] = _HELPERS
    """Conntrack helpers that the annotation `helper` may ask for. Default: all."""
    annotation_engines: Annotated[
        frozenset[str], words_of(_ENGINES), Variable("KUBE_NFTLB_ANNOTATION_ENGINES", "annotations.engines")
    ] = _ENGINES
    """Engines that the annotation `engine` may ask for: `nftlb`, `nftables`.

    Default: all. Without any, all Services have the engine of `defaults.engine`.
    """
    readiness_gate: Annotated[Switch, Variable("KUBE_NFTLB_READINESS_GATE", "readinessGate.enabled")] = False
    """Set the readiness gate `kube-nftlb.io/programmed` of Pods that have it and the label
    `kube-nftlb.io/readiness-gate: enabled`: they become ready once all nodes that count send them connections. The
    operator may then write the status of Pods.
    """
    service_status: Annotated[Switch, Variable("KUBE_NFTLB_SERVICE_STATUS", "serviceStatus.enabled")] = False
    """Write the condition `kube-nftlb.io/Programmed` into the status of Services; else nothing is written to them."""
    addresses_without_class: Annotated[
        Switch, Variable("KUBE_NFTLB_ADDRESSES_WITHOUT_CLASS", "addresses.withoutClass")
    ] = False
    """Also give addresses to Services without `spec.loadBalancerClass`. Enable it only if no other program does.

    Where it is switched off again, all these Services lose their addresses of pools at once.
    """
    gateway: Annotated[Switch, Variable("KUBE_NFTLB_GATEWAY", "gateway.enabled")] = False
    """Serve TCPRoutes and UDPRoutes of Gateway API, whose CustomResourceDefinitions you install, now or later.

    Gateways of classes with the controller `kube-nftlb.io/gateway` get addresses from NftlbAddressPools, so
    `addresses.enabled` is required. The operator may then read these objects and write their status, and write
    IPAddresses.
    """
    gateway_engine: Annotated[DefaultEngine, Variable("KUBE_NFTLB_GATEWAY_ENGINE", "gateway.engine")] = "nftables"
    """Engine of the farms of routes: `nftables`, `nftlb`, or `auto` (nftables for what it can serve)."""
    gateway_cluster_ips: Annotated[
        Number,
        Variable("KUBE_NFTLB_GATEWAY_NAMESPACE_CLUSTER_IPS_MAX", "gateway.namespaceClusterIPs"),
        Interval(ge=0, le=65536),
    ] = 32
    """Number of cluster IPs that the Gateways of a namespace may have, by addresses with `routability: Cluster`."""
    leader_election: Annotated[Switch, Variable("KUBE_NFTLB_LEADER_ELECTION")] = False
    """Whether only the replica that holds a Lease writes."""


class NftlbSettings(Settings):
    """Settings that the agent, ``kube-nftlb nftlb-daemon`` and ``kube-nftlb nftlb`` share on a node."""

    run_dir: Annotated[Path, Allowed("a directory"), Variable("KUBE_NFTLB_RUN_DIR")] = Path("/run/kube-nftlb")
    """Directory of nftlb's key, shared with nftlb, best in memory."""
    state_dir: Annotated[Path, Allowed("a directory"), Variable("KUBE_NFTLB_STATE_DIR")] = Field(
        default_factory=lambda data: data["run_dir"]
    )
    """Directory of nftlb's startup file and the changes made to pods; by default the run directory.

    It should survive restarts of both programs, but not of the machine.
    """
    port: Annotated[Number, Variable("KUBE_NFTLB_NFTLB_PORT", "agent.nftlbPort"), Interval(ge=1, le=65535)] = 5555
    """TCP port of nftlb on 127.0.0.1."""

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

    @property
    def intervals_file(self) -> Path:
        """The file with the intervals of BFD that routers ask for, by which the next BIRD waits."""
        return self.state_dir / "bfd.json"


class ConntrackSettings(Settings):
    """Settings of the kernel's connection tracking; 0 keeps the kernel's. The defaults are kube-proxy's."""

    max_per_core: Annotated[
        Number, Variable("KUBE_NFTLB_CONNTRACK_MAX_PER_CORE", "conntrack.maxPerCore"), Interval(ge=0, le=1 << 24)
    ] = 32768
    """Connections that a node tracks per CPU core, if that is more than now; 0 keeps the kernel's setting."""
    minimum: Annotated[Number, Variable("KUBE_NFTLB_CONNTRACK_MIN", "conntrack.min"), Interval(ge=0, le=1 << 28)] = (
        131072
    )
    """Connections that a node tracks at least, if `conntrack.maxPerCore` is not 0."""
    tcp_established_s: Annotated[
        Number,
        Variable("KUBE_NFTLB_CONNTRACK_TCP_ESTABLISHED_SECONDS", "conntrack.tcpEstablishedSeconds"),
        Interval(ge=0, le=_MONTH_S),
    ] = 86400
    """Conntrack timeout in seconds of idle TCP connections; 0 keeps the kernel's setting."""
    tcp_close_wait_s: Annotated[
        Number,
        Variable("KUBE_NFTLB_CONNTRACK_TCP_CLOSE_WAIT_SECONDS", "conntrack.tcpCloseWaitSeconds"),
        Interval(ge=0, le=_MONTH_S),
    ] = 3600
    """Conntrack timeout in seconds of TCP connections in state CLOSE_WAIT; 0 keeps the kernel's setting."""
    tcp_be_liberal: Annotated[Switch, Variable("KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL", "conntrack.tcpBeLiberal")] = False
    """Translate TCP packets outside the window too; otherwise they reach clients untranslated, who reset the
    connection.
    """
    count_bytes: Annotated[Switch, _PER_FARM] = False
    """Export connections and bytes of the busiest farms and their backends on each node.

    The agents set the sysctl `net.netfilter.nf_conntrack_acct`, by which the kernel counts bytes; it stays until
    the node restarts.
    """


class TrafficSettings(Settings):
    """Settings of the metrics of farms and backends."""

    farms: Annotated[
        Number, Variable("KUBE_NFTLB_METRICS_FARMS_MAX", "metrics.perFarm.farms"), Interval(ge=1, le=1000)
    ] = 20
    """Number of farms with series on a node."""
    backends: Annotated[
        Number, Variable("KUBE_NFTLB_METRICS_FARM_BACKENDS_MAX", "metrics.perFarm.backends"), Interval(ge=0, le=100)
    ] = 10
    """Number of backends of each farm with series on a node."""
    selector: Annotated[
        LabelSelector,
        Allowed("a label selector", label_selector.parse),
        Variable("KUBE_NFTLB_METRICS_FARM_SELECTOR", "metrics.perFarm.selector"),
    ] = LabelSelector()
    """Label selector of the farms, as for `kubectl -l`.

    Farms also count as having the label `kubernetes.io/metadata.name` of their namespace. Default: all.
    """


class AgentSettings(CommonSettings):
    """Settings of the agent."""

    node_name: Annotated[Text, Variable("KUBE_NFTLB_NODE_NAME")]
    """Name of the Node that the agent runs on."""
    health_address: Annotated[Address, Variable("KUBE_NFTLB_HEALTH_ADDRESS")] = ListenAddress("::", 10256)
    """Address of /healthz, /livez and /readyz: by default where kube-proxy has its health checks."""
    sync_overdue_s: Annotated[
        Seconds, Variable("KUBE_NFTLB_SYNC_OVERDUE_SECONDS", "agent.syncOverdueSeconds"), Interval(ge=1, le=3600)
    ] = 60
    """Lag in seconds after which an agent reports unhealthy."""
    report_s: Annotated[
        Seconds, Variable("KUBE_NFTLB_REPORT_SECONDS", "agent.reportSeconds"), Interval(ge=0.01, le=60)
    ] = 0.25
    """Minimum interval in seconds of an agent's reports; with n nodes √n times that, and never more than a minute."""
    proxy_mode_address: Annotated[OptionalAddress, Variable("KUBE_NFTLB_PROXY_MODE_ADDRESS")] = None
    """Address of /proxyMode. Tests of Kubernetes ask for it on kube-proxy's 127.0.0.1:10249."""
    probe_address: Annotated[OptionalAddress, Variable("KUBE_NFTLB_PROBE_ADDRESS")] = None
    """Address of the kubelet's probes beside that of the metrics.

    On a loopback address nobody but the node can keep the kubelet from it.
    """
    nftlb: NftlbSettings = NftlbSettings()
    pod_cidrs: Annotated[Networks, Variable("KUBE_NFTLB_POD_CIDRS", "podCIDRs")] = ()
    """Pod CIDRs, if the network plugin does not use `spec.podCIDRs` of the Nodes."""
    node_port_addresses: Annotated[
        tuple[IpNetwork, ...] | None,
        Allowed("primary, or CIDRs such as 10.0.0.0/8,fd00::/64", _node_port_addresses),
        Variable("KUBE_NFTLB_NODE_PORT_ADDRESSES", "nodePortAddresses"),
    ] = None
    """CIDRs of the node addresses on which node ports listen; for a family without a CIDR, all addresses of that
    family. Default: the InternalIPs of the nodes (`primary`).
    """
    responder_socket: Annotated[Path, Allowed("a path"), Variable("KUBE_NFTLB_RESPONDER_SOCKET")] = Path(
        "/run/kube-nftlb-responder/socket"
    )
    """Socket of the process that answers ARP and NDP for the addresses that this node announces."""
    bgp: Annotated[Switch, Variable("KUBE_NFTLB_BGP", "addresses.bgp.enabled")] = False
    """Announce the addresses of pools with `announce.bgp` by BGP.

    The agents write a route for each into a kernel table of its own, from which a routing daemon announces it.
    """
    bgp_table: Annotated[
        Number, Variable("KUBE_NFTLB_BGP_TABLE", "addresses.bgp.table"), Interval(ge=256, le=2**32 - 1)
    ] = 4242
    """Number of that table. Nothing else may use it."""
    bird_dir: Annotated[Path | None, Allowed("a directory"), Variable("KUBE_NFTLB_BIRD_DIR")] = None
    """Directory of the configuration and the control socket of the BIRD that announces these routes, shared with it.

    Without one, another daemon reads the table.
    """
    conntrack: ConntrackSettings = ConntrackSettings()
    traffic: TrafficSettings | None = None
    """None if the metrics of farms are off."""
    daemon_set: Annotated[str | None, Allowed("text"), Variable("KUBE_NFTLB_DAEMON_SET")] = None
    """DaemonSet that runs the agent.

    When it is deleted, the agent removes its rules before it exits; when it no longer selects the node, once
    kube-proxy has rules there. Without one, they always stay.
    """
    kube_proxy_cleanup: Annotated[Switch, Variable("KUBE_NFTLB_KUBE_PROXY_CLEANUP", "kubeProxy.cleanup")] = True
    """Remove the rules that kube-proxy left on a node: once farms serve what they do and kube-proxy has been gone
    for 5 s, and once in the life of an agent. Otherwise they are only reported.
    """
    sysctl_dir: Annotated[Path, Allowed("a directory"), Variable("KUBE_NFTLB_SYSCTL_DIR")] = Path("/proc/sys")
    """Writable mount of /proc/sys."""

    @field_validator("traffic")
    @classmethod
    def _only_if_on(cls, traffic: TrafficSettings | None, info: ValidationInfo) -> TrafficSettings | None:
        return traffic if info.data["conntrack"].count_bytes else None
