"""What administrators set, read from environment variables."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeVar

from kube_nftlb import errors

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["json", "console"]

DefaultMode = Literal["snat", "dnat"]
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_T = TypeVar("_T")

_LOG_LEVELS: dict[str, LogLevel] = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARNING", "ERROR": "ERROR"}
_DEFAULT_MODES: dict[str, DefaultMode] = {"snat": "snat", "dnat": "dnat"}
_SWITCH = {"on": True, "off": False}
_LOG_FORMATS: dict[str, LogFormat] = {"json": "json", "console": "console"}


class ListenAddress(NamedTuple):
    """Where a server listens: an IP address (or host name) and a TCP port."""

    host: str
    port: int


@dataclass(frozen=True)
class CommonSettings:
    """What the operator and the agent have in common."""

    metrics_address: ListenAddress
    """KUBE_NFTLB_METRICS_ADDRESS: where Prometheus' metrics are served, as ``host:port`` or ``[IPv6]:port``."""
    health_address: ListenAddress
    """KUBE_NFTLB_HEALTH_ADDRESS: where /healthz, /livez and /readyz are served, as ``host:port`` or ``[IPv6]:port``.

    ``[::]`` stands for all addresses of both families. The operator's default is 127.0.0.1:9196, the agent's
    [::]:10256, where load balancers ask kube-proxy.
    """
    log_level: LogLevel
    """KUBE_NFTLB_LOG_LEVEL: the least level that is logged: DEBUG, INFO (the default), WARNING or ERROR."""
    log_format: LogFormat
    """KUBE_NFTLB_LOG_FORMAT: json (the default), one object per line, or console, for people."""


@dataclass(frozen=True)
class OperatorSettings(CommonSettings):
    """What can be set of the operator."""

    relist_s: float
    """KUBE_NFTLB_RELIST_SECONDS: seconds between two complete lists, 10 to 86400 (300)."""
    default_mode: DefaultMode
    """KUBE_NFTLB_DEFAULT_MODE: snat (the default), or dnat: backends see the clients' addresses as with kube-proxy."""
    external_ip_ranges: tuple[IpNetwork, ...]
    """KUBE_NFTLB_EXTERNAL_IP_RANGES: CIDRs with commas between; spec.externalIPs elsewhere are not served (all)."""
    source_address_ranges: tuple[IpNetwork, ...]
    """KUBE_NFTLB_SOURCE_ADDRESS_RANGES: CIDRs with commas between; the annotation source-addr takes no other (all)."""
    leader_election: bool
    """KUBE_NFTLB_LEADER_ELECTION: off (the default), or on: of several operators only the holder of a Lease writes."""
    namespace: str
    """KUBE_NFTLB_NAMESPACE: where that Lease is (kube-nftlb-system)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings; an empty variable is one that is not set. Raises UsageError for a value it cannot take."""
        return cls(
            metrics_address=listen_address(environ, "KUBE_NFTLB_METRICS_ADDRESS", "127.0.0.1:9195"),
            health_address=listen_address(environ, "KUBE_NFTLB_HEALTH_ADDRESS", "127.0.0.1:9196"),
            log_level=log_level(environ),
            log_format=log_format(environ),
            relist_s=seconds(environ, "KUBE_NFTLB_RELIST_SECONDS", 300, low=10, high=86400),
            default_mode=_choice(environ, "KUBE_NFTLB_DEFAULT_MODE", "snat", _DEFAULT_MODES),
            external_ip_ranges=networks(environ, "KUBE_NFTLB_EXTERNAL_IP_RANGES", "0.0.0.0/0,::/0"),
            source_address_ranges=networks(environ, "KUBE_NFTLB_SOURCE_ADDRESS_RANGES", "0.0.0.0/0,::/0"),
            leader_election=_choice(environ, "KUBE_NFTLB_LEADER_ELECTION", "off", _SWITCH),
            namespace=namespace(environ),
        )


@dataclass(frozen=True)
class NftlbSettings:
    """What the agent, nftlb's start and ``kube-nftlb nftlb`` have to agree on, on one node."""

    run_dir: Path
    """KUBE_NFTLB_RUN_DIR: the folder with nftlb's key, shared with nftlb, best in memory (/run/kube-nftlb)."""
    state_dir: Path
    """KUBE_NFTLB_STATE_DIR: the folder with nftlb's start-up file, and what was done to pods (the same).

    It is to outlive both programs, though not the machine's start.
    """
    port: int
    """KUBE_NFTLB_NFTLB_PORT: the TCP port on 127.0.0.1 that nftlb listens on (5555)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Raises UsageError for a value it cannot take."""
        port = environ.get("KUBE_NFTLB_NFTLB_PORT") or "5555"
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise errors.UsageError(f"KUBE_NFTLB_NFTLB_PORT={port!r}: give a port from 1 to 65535")
        run_dir = environ.get("KUBE_NFTLB_RUN_DIR") or "/run/kube-nftlb"
        return cls(Path(run_dir), Path(environ.get("KUBE_NFTLB_STATE_DIR") or run_dir), int(port))

    @property
    def url(self) -> str:
        """Where nftlb's API is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def key_file(self) -> Path:
        """Holds nftlb's key, new at each of its starts."""
        return self.run_dir / "nftlb.key"

    @property
    def startup_file(self) -> Path:
        """What nftlb loads before it answers: the farms that the agent last saw in the kernel."""
        return self.state_dir / "nftlb.json"

    @property
    def pods_file(self) -> Path:
        """What pods were given for farms in the mode dsr, and how they were before."""
        return self.state_dir / "dsr.json"


@dataclass(frozen=True)
class AgentSettings(CommonSettings):
    """What can be set of the agent."""

    node_name: str
    """KUBE_NFTLB_NODE_NAME: the name of the Node that the agent runs on; required."""
    sync_overdue_s: float
    """KUBE_NFTLB_SYNC_OVERDUE_SECONDS: seconds for which changes of farms may wait, 1 to 3600 (60).

    After that the agent answers that it is unhealthy.
    """
    nftlb: NftlbSettings
    """Where nftlb is."""
    pod_cidrs: tuple[IpNetwork, ...]
    """KUBE_NFTLB_POD_CIDRS: the ranges of this node's pods, with commas between (the Node's spec.podCIDRs)."""
    node_port_addresses: tuple[IpNetwork, ...] | None
    """KUBE_NFTLB_NODE_PORT_ADDRESSES: ``primary`` (the default): node ports are listened on at the Node's InternalIPs;
    or CIDRs with commas between: at all addresses of the node in them, a family without a CIDR at all of its own."""
    tcp_close_wait_s: int
    """KUBE_NFTLB_CONNTRACK_TCP_CLOSE_WAIT_SECONDS: for how long the kernel remembers a connection that one side has not
    closed (3600, as kube-proxy's --conntrack-tcp-timeout-close-wait); 0 leaves the kernel's own time."""
    namespace: str
    """KUBE_NFTLB_NAMESPACE: where the agent's DaemonSet is (kube-nftlb-system)."""
    daemon_set: str
    """KUBE_NFTLB_DAEMON_SET: the DaemonSet that runs the agent: when that is deleted, the agent takes its rules away as
    it ends. Empty (the default): they always stay."""
    sysctl_dir: Path
    """KUBE_NFTLB_SYSCTL_DIR: a folder with what /proc/sys has, where that cannot be written (/proc/sys)."""
    tcp_be_liberal: bool
    """KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL: off (the default), or on: TCP packets outside their window are translated
    too, instead of reaching clients as they are, who answer with a reset (kube-proxy's --conntrack-tcp-be-liberal)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings; an empty variable is one that is not set. Raises UsageError for a value it cannot take."""
        node_name = environ.get("KUBE_NFTLB_NODE_NAME") or ""
        if not node_name:
            raise errors.UsageError(
                "KUBE_NFTLB_NODE_NAME is not set: give the name of the Node that this agent runs on"
            )
        ports = "KUBE_NFTLB_NODE_PORT_ADDRESSES"
        return cls(
            metrics_address=listen_address(environ, "KUBE_NFTLB_METRICS_ADDRESS", "127.0.0.1:9195"),
            health_address=listen_address(environ, "KUBE_NFTLB_HEALTH_ADDRESS", "[::]:10256"),
            log_level=log_level(environ),
            log_format=log_format(environ),
            node_name=node_name,
            sync_overdue_s=seconds(environ, "KUBE_NFTLB_SYNC_OVERDUE_SECONDS", 60, low=1, high=3600),
            nftlb=NftlbSettings.from_environment(environ),
            pod_cidrs=networks(environ, "KUBE_NFTLB_POD_CIDRS", ""),
            node_port_addresses=(
                None if (environ.get(ports) or "primary") == "primary" else networks(environ, ports, "")
            ),
            tcp_close_wait_s=int(
                seconds(environ, "KUBE_NFTLB_CONNTRACK_TCP_CLOSE_WAIT_SECONDS", 3600, low=0, high=2592000)
            ),
            namespace=namespace(environ),
            daemon_set=environ.get("KUBE_NFTLB_DAEMON_SET") or "",
            sysctl_dir=Path(environ.get("KUBE_NFTLB_SYSCTL_DIR") or "/proc/sys"),
            tcp_be_liberal=_choice(environ, "KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL", "off", _SWITCH),
        )


def namespace(environ: Mapping[str, str]) -> str:
    """KUBE_NFTLB_NAMESPACE."""
    return environ.get("KUBE_NFTLB_NAMESPACE") or "kube-nftlb-system"


def log_level(environ: Mapping[str, str]) -> LogLevel:
    """KUBE_NFTLB_LOG_LEVEL."""
    return _choice(environ, "KUBE_NFTLB_LOG_LEVEL", "INFO", _LOG_LEVELS)


def log_format(environ: Mapping[str, str]) -> LogFormat:
    """KUBE_NFTLB_LOG_FORMAT."""
    return _choice(environ, "KUBE_NFTLB_LOG_FORMAT", "json", _LOG_FORMATS)


def listen_address(environ: Mapping[str, str], name: str, default: str) -> ListenAddress:
    """A variable that holds ``host:port``."""
    value = environ.get(name) or default
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise errors.UsageError(f"{name}={value!r}: give host:port or [IPv6]:port, the port from 1 to 65535")
    return ListenAddress(host, int(port))


def seconds(environ: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    """A variable that holds a number of seconds."""
    value = environ.get(name) or str(default)
    sentence = f"{name}={value!r}: give a number of seconds from {low} to {high}"
    try:
        number = float(value)
    except ValueError:
        raise errors.UsageError(sentence) from None
    # Written so that "nan" is refused as well.
    if not low <= number <= high:
        raise errors.UsageError(sentence)
    return number


def networks(environ: Mapping[str, str], name: str, default: str) -> tuple[IpNetwork, ...]:
    """A variable that holds address ranges with commas between."""
    value = environ.get(name) or default
    try:
        return tuple(ipaddress.ip_network(text.strip()) for text in value.split(",") if text.strip())
    except ValueError as error:
        raise errors.UsageError(f"{name}={value!r}: {error}; give CIDRs such as 10.0.0.0/8,fd00::/64") from None


def _choice(environ: Mapping[str, str], name: str, default: str, allowed: Mapping[str, _T]) -> _T:
    value = environ.get(name) or default
    if value not in allowed:
        raise errors.UsageError(f"{name}={value!r}: give one of {', '.join(allowed)}")
    return allowed[value]
