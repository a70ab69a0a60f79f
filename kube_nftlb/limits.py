"""The number and size of objects that one namespace may have: settings on which operator and agents must agree."""

from typing import Annotated

from annotated_types import Interval

from kube_nftlb.environment import Number, Settings, Variable


class NamespaceLimits(Settings):
    """The limits of one namespace."""

    service_ports: Annotated[
        Number, Variable("KUBE_NFTLB_SERVICE_PORTS_MAX", "limits.servicePorts"), Interval(ge=1, le=32768)
    ] = 1024
    """Number of ports of a Service that are served. Each is a farm or more."""
    farms: Annotated[
        Number, Variable("KUBE_NFTLB_NAMESPACE_FARMS_MAX", "limits.namespaceFarms"), Interval(ge=1, le=1000000)
    ] = 10_000
    """Number of farms of a namespace.

    Those of Services come first, then older ones; a large one counts once for each 50 of its ports and backends. A
    Service whose farms do not fit is not served. Annotations of Pods may add 50 times as many overrides, one for
    each annotated Pod in each farm.
    """
    policies: Annotated[
        Number, Variable("KUBE_NFTLB_NAMESPACE_POLICIES_MAX", "limits.namespacePolicies"), Interval(ge=1, le=100000)
    ] = 256
    """Number of NftlbPolicies of a namespace; older ones come first."""
    policy_ranges: Annotated[
        Number,
        Variable("KUBE_NFTLB_NAMESPACE_POLICY_RANGES_MAX", "limits.namespacePolicyRanges"),
        Interval(ge=1, le=10000000),
    ] = 65_536
    """Number of address ranges of all NftlbPolicies of a namespace."""
    farm_elements: Annotated[
        Number, Variable("KUBE_NFTLB_FARM_ELEMENTS_MAX", "limits.farmElements"), Interval(ge=1, le=100000000)
    ] = 262_144
    """Number of elements of a farm in the nftables of a node: its pairs of address and port, times its backends
    where each has elements of its own, and 8,192 for each of its limits of clients.
    """
    elements: Annotated[
        Number, Variable("KUBE_NFTLB_NAMESPACE_ELEMENTS_MAX", "limits.namespaceElements"), Interval(ge=1, le=100000000)
    ] = 1_000_000
    """Number of elements of all farms of a namespace in the nftables of a node; older farms come first."""
    node_elements: Annotated[
        Number, Variable("KUBE_NFTLB_NODE_ELEMENTS_MAX", "limits.nodeElements"), Interval(ge=1, le=1000000000)
    ] = 8_000_000
    """Number of elements of all farms in the nftables of a node, at about 0.1 kB each; where namespaces want more
    together, each has a fair share.
    """
