"""The prose of the report."""

from collections.abc import Mapping
from typing import NamedTuple


class Chapter(NamedTuple):
    """A section of the page about one scenario."""

    scenario: str
    title: str
    charts: tuple[str, ...]
    text: str = ""


CHAPTERS = (
    Chapter(
        "latency",
        "How soon a Service works",
        ("latency", "way", "rules"),
        """
        A Service is created for a Deployment whose pods are ready, and deleted two seconds later. A pod tries the VIP
        every millisecond, and times start at the API server's response (so they may be negative: a watch event may
        arrive before the response). `idle`: nothing else changes. `steady`: ten times a second an endpoint of another
        Service is replaced. `found by selector`: the EndpointSlice is created after the Service, as for every Service
        with a selector; `made before`: it is created two seconds before the Service. kube-proxy has its default
        configuration, with at most one sync a second; under steady change each Service is created at a different
        moment of that second. The proxies take turns. The segment `API: the farm` is the mean that the API server
        reports; `nftlb and the kernel` ends with the transaction, and the two cannot be told apart from outside.
        Rules, chains and elements (including those of anonymous maps) are those of a whole node, with 50 other
        Services of two endpoints each.
        """,
    ),
    Chapter(
        "endpoints",
        "How soon an endpoint is used",
        (),
        """
        An endpoint of a Service becomes not ready, and ready again two seconds later; its Service has this many. With
        internalTrafficPolicy Local only this endpoint is on the client's node, so that no other can answer; a pod tries
        the VIP every millisecond, and times start at the API server's response. `steady`: ten times a second an
        endpoint of another Service is replaced. Processor time and bytes per change are what ten changes a second cost
        above a quiet time of the same length, after a minute of them; bytes to etcd are those of its log, bytes to the
        node all that it receives. `rolling update`: each endpoint of a Service of five ports is replaced once, in
        slices of 100.
        """,
    ),
    Chapter(
        "datapath",
        "The data path",
        ("datapath", "processor", "packets"),
        """
        Client, servers (NGINX, one process per pod) and kernel share the CPUs of one machine, and the subjects take
        turns in short rounds: compare figures within a row, not between rows or machines. `processor time` is the CPU
        time of the client, the servers, the proxies and the kernel's packet threads together. For every subject,
        conntrack drops closed connections after 2 s instead of 120 s. HAProxy and NGINX are TCP proxies on the node.
        Our subjects use the scheduler `rr`, except for `dnat, weight`, which chooses at random as kube-proxy does.
        Both tools measure latency from an established connection. With more other Services, only wrk runs, with 10
        servers; k6 runs with one user on a persistent connection, and with 500 users without.
        """,
    ),
    Chapter(
        "limit",
        "The minimum",
        ("limit",),
        """
        What everything above builds on, measured in a network namespace of its own: loading a whole ruleset of ours
        in one transaction, one query or change over a netlink socket without a library, the same query as the agent
        sends it, and nftlb's responses over HTTP.
        """,
    ),
    Chapter(
        "schedulers",
        "Slow servers",
        ("schedulers",),
        """
        500 users, a new connection for each request, and 10 servers that wait for a second before they reply, the
        usual test of IPVS schedulers. All servers are one process of the lab, and 500 requests a second are the
        maximum. The figures show the cost of a scheduler; tests/functional/test_schedulers.py tests how it spreads
        connections. kube-proxy has only one scheduler.
        """,
    ),
    Chapter(
        "scale",
        "Many Services",
        ("scale",),
        """
        All Services are created with this many endpoints, or scaled to them, as when the Deployment behind all of
        them is scaled; sixteen writers are as fast as the API server permits. `written at the API`: the last slice
        is written. `all in the kernel`: every Service has its new endpoints there; for kube-proxy, a Service created
        right after the last of them answers. `one change meanwhile`: from the creation of a Service in another
        namespace, after half of them, until a pod reaches it; `afterwards` is the same, three times. The proxies run
        one after another, and each step is measured once: differences of less than half are not significant.
        """,
    ),
    Chapter(
        "intake",
        "Operator start-up",
        ("intake",),
        """
        The operator is started in a cluster with all Services, as many EndpointSlices and farms, and one new Service.
        Memory and CPU time are measured when the new Service has its farm.
        """,
    ),
    Chapter(
        "cost",
        "Resource usage",
        ("cost",),
        """
        Seconds of CPU time per second, and memory, of each program; the proxies run one after another. `10 changes a
        second`: each replaces an endpoint of another Service. For 8,000 Services the scenario `scale` measures the
        programs.
        """,
    ),
)

TERMS = (
    (
        "`snat`, `dnat`, `dsr`: the modes of a farm. With snat the server sees the node's address, with dnat the "
        "client's; with dsr packets reach the server unchanged, and its replies bypass the node."
    ),
    (
        "`rr`, `weight`, `hash`, `symhash`: the schedulers of a farm: in turn, at random by weight, or by a hash of "
        "header fields."
    ),
    "`others`: idle Services with ten endpoints each. `VIP`: the address of a Service.",
    "`-`: not measured, or does not exist.",
)

CLOSES: Mapping[str, str] = {
    "steady": (
        "kube-proxy waits for half a second on average, so ten times faster is 50 ms. Most of our time is the API "
        "server's, for the farm in addition to the Service and its slice: it grows with the endpoints "
        "([scaling.md](scaling.md)). Without nftlb's waits (`rcu_expedited`, there) it was no faster. Agents that "
        "watch Services and slices themselves, without waiting for the farm, might close the gap; untried."
    ),
    "idle": (
        "If the endpoints exist before the Service, neither waits, and ours makes one more round trip through the API "
        "server, for the farm."
    ),
    "datapath": (
        "The next line shows the cost of the rules without the noise of clients and servers. What would close the gap "
        "is not proven; the likeliest is the engine of [scaling.md](scaling.md), untried."
    ),
    "packets": (
        "In the mode snat a first packet is also masqueraded, which kube-proxy does not do for pods: compare dnat. For "
        "each later packet nftlb looks up its map of listeners once more; kube-proxy looks up none."
    ),
    "single": (
        "With 240,000 backends each transaction takes nftlb 0.6 s or more, and a new Service waits for one or two of "
        "them. The map engine of [scaling.md](scaling.md) would close the gap; it is not written."
    ),
    "meanwhile": (
        "It waits for the two farms that nftlb is processing, at 0.1 to 0.6 s each, and for the API server, which is "
        "as busy. The map engine of [scaling.md](scaling.md) would close the gap; it is not written."
    ),
    "intake": "Most of it is the operator's own CPU time, for parsing; the rest is the API server's, for encoding.",
    "deletion": (
        "A deletion passes through the API server twice, for the Service and for its farm; with kube-proxy once. "
        "Agents that watch Services themselves might close the gap; untried."
    ),
}
"""What would close the gap of a missed target, by its key."""
