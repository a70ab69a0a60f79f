"""The rules about several fields of a farm."""

from typing import Final

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm.backends_from import Override
from kube_nftlb.api.farm.fields import FarmFields
from kube_nftlb.api.rules import Rule
from kube_nftlb.api.values import IPV4_HELPERS, KERNEL_HELPERS


def _is(family: Family, address: str | None) -> bool:
    return address is None or (":" in address) == (family == "ipv6")


def _has_limits(farm: FarmFields) -> bool:
    limits = farm.limits
    return limits.tcp_strict or any(limit is not None for limit in (limits.new, limits.reset, limits.established))


def _overrides(farm: FarmFields) -> tuple[Override, ...]:
    return tuple(override for each in farm.backends_from for override in each.overrides)


def _packet_fields(farm: FarmFields) -> set[str]:
    return {*farm.sched_param.split(), *farm.persistence.split()}


def _helper_fits_protocol(farm: FarmFields) -> bool:
    return farm.helper == "none" or (farm.helper, farm.protocol) in KERNEL_HELPERS


def _helpers_of(*helpers: str) -> str:
    return f"self.helper in [{', '.join(repr(helper) for helper in helpers)}]"


_UDP_HELPERS = ("amanda", "netbios-ns", "snmp", "tftp")
_TCP_HELPERS = ("ftp", "irc", "pptp", "sane")
_TCP_UDP_HELPERS = ("h323", "sip")

FARM_RULES: Final[tuple[Rule[FarmFields], ...]] = (
    Rule(
        "address-ip",
        "self.addresses.all(a, (a.ip == '') == (a.type == 'NodePort'))",
        lambda farm: all((address.ip == "") == (address.type == "NodePort") for address in farm.addresses),
        "every address must have an ip, except those of type NodePort, which must not",
    ),
    Rule(
        "address-family",
        "self.addresses.all(a, !isIP(a.ip) || ip(a.ip).family() == (self.family == 'ipv6' ? 6 : 4))",
        lambda farm: all(_is(farm.family, address.ip or None) for address in farm.addresses),
        "every address must be of the farm's family",
    ),
    Rule(
        "source-range-family",
        "self.family == 'ipv6' ? self.addresses.all(a, a.sourceRanges.all(r, r.contains(':'))) "
        ": self.addresses.all(a, a.sourceRanges.all(r, !r.contains(':')))",
        lambda farm: all(_is(farm.family, each) for address in farm.addresses for each in address.source_ranges),
        "every source range must be of the farm's family",
    ),
    # There may be a thousand backends, and for each field that a rule reads the API server lists all that the schema
    # has: hence one field of each backend, and no field of the farm inside the loop.
    Rule(
        "backend-family",
        "self.family == 'ipv6' ? self.backends.all(b, b.ip.contains(':')) : self.backends.all(b, !b.ip.contains(':'))",
        lambda farm: all(_is(farm.family, backend.ip) for backend in farm.backends),
        "every backend must be of the farm's family",
    ),
    Rule(
        "backends-from",
        "size(self.backendsFrom) == 0 || (size(self.backends) == 0 && self.mode != 'local')",
        lambda farm: not farm.backends_from or (not farm.backends and farm.mode != "local"),
        "backends and backendsFrom exclude each other, and mode local has neither",
    ),
    Rule(
        "backends-from-port",
        "self.protocol != 'All' || self.backendsFrom.all(g, g.refuse || g.keepPort)",
        lambda farm: farm.protocol != "All" or all(each.refuse or each.keep_port for each in farm.backends_from),
        "with protocol All, backendsFrom.keepPort must be true: connections keep their destination port",
    ),
    Rule(
        "address-ports",
        "self.addresses.all(a, (a.ports == '') == (self.protocol == 'All'))",
        lambda farm: all((address.ports == "") == (farm.protocol == "All") for address in farm.addresses),
        "every address must have ports, except with protocol All, which includes every port",
    ),
    Rule(
        "backend-ports",
        "(self.protocol != 'All' && self.backends.all(b, has(b.port))) || self.backends.all(b, !has(b.port))",
        lambda farm: (
            (farm.protocol != "All" and all(backend.port is not None for backend in farm.backends))
            or all(backend.port is None for backend in farm.backends)
        ),
        "either all backends must have a port or none; with protocol All, none (without one, connections keep their "
        "destination port)",
    ),
    Rule(
        "sched-param",
        "self.schedParam == 'none' || self.scheduler == 'hash'",
        lambda farm: farm.sched_param == "none" or farm.scheduler == "hash",
        "schedParam requires scheduler hash",
    ),
    Rule(
        "ipv6-persistence",
        "self.family == 'ipv4' || !self.persistence.contains(' ') || !self.persistence.contains('ip')",
        lambda farm: farm.family == "ipv4" or " " not in farm.persistence or "ip" not in farm.persistence,
        "with family ipv6, persistence cannot combine srcip or dstip with another field: nftlb exits on longer keys",
    ),
    Rule(
        "ipv6-sched-param",
        "self.family == 'ipv4' || !(self.schedParam.startsWith('srcip dstip ')"
        " && self.schedParam.contains('port') && self.schedParam.endsWith('srcmac dstmac'))",
        lambda farm: (
            farm.family == "ipv4" or not ({"srcip", "dstip", "srcmac", "dstmac"} < set(farm.sched_param.split()))
        ),
        "with family ipv6, schedParam cannot combine both IP addresses, both MAC addresses and a port: nftlb exits on "
        "longer keys",
    ),
    Rule(
        "all-packet-fields",
        "self.protocol != 'All' || !(self.schedParam + self.persistence).contains('port')",
        lambda farm: farm.protocol != "All" or _packet_fields(farm).isdisjoint(("srcport", "dstport")),
        "with protocol All, schedParam and persistence cannot use ports: nftlb would only see those of TCP",
    ),
    Rule(
        "source-address-mode",
        "!has(self.sourceAddress) || self.mode == 'snat'",
        lambda farm: farm.source_address is None or farm.mode == "snat",
        "sourceAddress requires mode snat; in all other modes, backends see the client's address",
    ),
    Rule(
        "backend-source-address",
        "self.backends.all(b, !has(b.sourceAddress) || !isIP(b.sourceAddress) || (self.mode == 'snat' && "
        "ip(b.sourceAddress).family() == (self.family == 'ipv6' ? 6 : 4)))",
        lambda farm: all(
            backend.source_address is None or (farm.mode == "snat" and _is(farm.family, backend.source_address))
            for backend in farm.backends
        ),
        "sourceAddress of a backend requires mode snat, and must be of the farm's family",
    ),
    Rule(
        "override-source-address",
        "self.mode == 'snat' && self.protocol != 'All' ? (self.family == 'ipv6' "
        "? self.backendsFrom.all(g, g.overrides.all(o, !has(o.sourceAddress) || o.sourceAddress.contains(':'))) "
        ": self.backendsFrom.all(g, g.overrides.all(o, !has(o.sourceAddress) || !o.sourceAddress.contains(':')))) "
        ": self.backendsFrom.all(g, g.overrides.all(o, !has(o.sourceAddress)))",
        lambda farm: all(
            override.source_address is None
            or (farm.mode == "snat" and farm.protocol != "All" and _is(farm.family, override.source_address))
            for override in _overrides(farm)
        ),
        "sourceAddress of an override requires mode snat and a protocol other than All, and must be of the farm's "
        "family",
    ),
    Rule(
        "source-address-family",
        "!has(self.sourceAddress) || !isIP(self.sourceAddress) || "
        "ip(self.sourceAddress).family() == (self.family == 'ipv6' ? 6 : 4)",
        lambda farm: _is(farm.family, farm.source_address),
        "sourceAddress must be of the farm's family",
    ),
    Rule(
        "all-options",
        "self.protocol != 'All' || (self.helper == 'none' && self.log == 'none' && !has(self.sourceAddress) && "
        "!has(self.limits.new) && !has(self.limits.reset) && !has(self.limits.established) && "
        "!self.limits.tcpStrict && self.backends.all(b, !has(b.sourceAddress)))",
        lambda farm: (
            farm.protocol != "All"
            or (
                farm.helper == farm.log == "none"
                and farm.source_address is None
                and not _has_limits(farm)
                and all(backend.source_address is None for backend in farm.backends)
            )
        ),
        "protocol All does not support helper, log, sourceAddress and limits",
    ),
    Rule(
        "nat-options",
        "self.mode in ['snat', 'dnat'] || (self.helper == 'none' && self.log == 'none' && !has(self.mark))",
        lambda farm: farm.mode in ("snat", "dnat") or (farm.helper == farm.log == "none" and farm.mark is None),
        "helper, log and mark require mode snat or dnat",
    ),
    Rule(
        "dsr-family",
        "self.mode != 'dsr' || self.family == 'ipv4'",
        lambda farm: farm.mode != "dsr" or farm.family == "ipv4",
        "mode dsr requires family ipv4",
    ),
    Rule(
        "limits-mode",
        "self.mode in ['snat', 'dnat', 'local'] || (!has(self.limits.new) && !has(self.limits.reset) && "
        "!has(self.limits.established) && !self.limits.tcpStrict)",
        lambda farm: farm.mode in ("snat", "dnat", "local") or not _has_limits(farm),
        "limits require mode snat, dnat or local",
    ),
    Rule(
        "on-gone-mode",
        "self.onGone == 'keep' || self.mode in ['snat', 'dnat']",
        lambda farm: farm.on_gone == "keep" or farm.mode in ("snat", "dnat"),
        "onGone cut requires mode snat or dnat; in other modes, nodes do not know the connections",
    ),
    Rule(
        "udp-helpers",
        f"!({_helpers_of(*_UDP_HELPERS)}) || self.protocol == 'UDP'",
        lambda farm: farm.helper not in _UDP_HELPERS or _helper_fits_protocol(farm),
        "the helpers amanda, netbios-ns, snmp and tftp require protocol UDP",
    ),
    Rule(
        "tcp-helpers",
        f"!({_helpers_of(*_TCP_HELPERS)}) || self.protocol == 'TCP'",
        lambda farm: farm.helper not in _TCP_HELPERS or _helper_fits_protocol(farm),
        "the helpers ftp, irc, pptp and sane require protocol TCP",
    ),
    Rule(
        "tcp-udp-helpers",
        f"!({_helpers_of(*_TCP_UDP_HELPERS)}) || self.protocol in ['TCP', 'UDP']",
        lambda farm: farm.helper not in _TCP_UDP_HELPERS or _helper_fits_protocol(farm),
        "the helpers h323 and sip require protocol TCP or UDP",
    ),
    Rule(
        "ipv4-helpers",
        f"!({_helpers_of(*IPV4_HELPERS)}) || self.family == 'ipv4'",
        lambda farm: farm.helper not in IPV4_HELPERS or farm.family == "ipv4",
        "the helpers irc, netbios-ns, pptp and snmp require family ipv4",
    ),
    Rule(
        "sessions",
        "size(self.sessions) == 0 || self.persistence != 'none'",
        lambda farm: not farm.sessions or farm.persistence != "none",
        "sessions require a persistence, which defines what identifies a client",
    ),
    Rule(
        "policies-mode",
        "self.mode in ['snat', 'dnat', 'local'] || (size(self.policies) == 0 && "
        "self.addresses.all(a, size(a.policies) == 0))",
        lambda farm: (
            farm.mode in ("snat", "dnat", "local")
            or not (farm.policies or any(address.policies for address in farm.addresses))
        ),
        "policies require mode snat, dnat or local; in other modes, packets bypass them",
    ),
)
