"""The groups of Kubernetes' tests that concern a service proxy. Computation only."""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Group(NamedTuple):
    """Tests whose names begin alike."""

    name: str
    title: str
    beginning: str
    """A regular expression, of what follows ``[sig-network]``."""


GROUPS = (
    Group("services", "Services", "Services "),
    Group("conntrack", "Conntrack", "Conntrack "),
    Group("loadbalancers", "LoadBalancers", "LoadBalancers "),
    Group("traffic", "Traffic Distribution", "(Traffic Distribution|Topology Hints) "),
    Group("endpointslice", "EndpointSlice", "(EndpointSlice|EndpointSliceMirroring|Endpoints|EndpointsController) "),
    Group("networking", "Networking", "(Networking|HostPort|Connectivity Pod Lifecycle) "),
    Group("dns", "DNS", "DNS "),
    Group("dual-stack", "dual-stack", r"\[Feature:IPv6DualStack\] "),
)

LEFT_OUT = (
    (r"\[Serial\]", "serial tests: SCTP, and changes of the cluster DNS's own configuration"),
    (r"\[Disruptive\]", "disruptive tests, which reach the nodes by SSH or restart kube-proxy"),
    (r"\[Feature:SCTPConnectivity\]", "SCTP, which the machine's kernel may lack"),
    (r"\[Feature:Networking-", "the way to the Internet"),
    (r"\[Feature:(Networking-Performance|PerformanceDNS)\]", "performance"),
    (r"\[Alpha\]", "what needs an alpha feature"),
)
"""The tests that are not run, as regular expressions, and in words."""

_AREA = r"\[sig-network\] "


def focus(groups: Iterable[Group]) -> str:
    """Return the regular expression of the tests of some groups."""
    return f"{_AREA}({'|'.join(group.beginning for group in groups)})"


def skip() -> str:
    """Return the regular expression of the tests that are left out."""
    return "|".join(expression for expression, _ in LEFT_OUT)


def of(test: str) -> Group | None:
    """Return the group of a test, or None."""
    return next((group for group in GROUPS if re.match(_AREA + group.beginning, test)), None)
