"""The prose of the report."""

from typing import NamedTuple


class Chapter(NamedTuple):
    """A section of the page about one scenario."""

    scenario: str
    title: str
    text: str


INTRODUCTION = """
kube-nftlb with each of its engines beside kube-proxy in nftables mode, on one machine.

- Figures are medians, with the lowest and the highest of n values in brackets.
- In bold: kube-nftlb's figure as a share of kube-proxy's. Where the proxies took turns that is the median of the ratios
  of each round, with its 95 % interval; otherwise, or with a single value, the ratio of the medians, and no interval.
- By default kube-proxy syncs at most once a second (`minSyncPeriod: 1s`), so the times of changes are measured beside
  kube-proxy 1.37 with `minSyncPeriod: 0` as well, in the same run. Up to 1.36 it lists its whole table by `nft` at each
  sync (kubernetes/kubernetes#139513), which is in no figure of changes here.
- The last column names the scenario: `python -m benchmarks --full --only SCENARIO` measures it, and its section below
  has all figures.
- Not everything has been measured with the same version: each section names its runs, with Kubernetes, commit and date.

The page is made from [the records](../benchmarks/results/published) by `python -m benchmarks.report`. For what many
Services cost, and where the limits are, see [scaling.md](scaling.md).
"""

CHAPTERS = (
    Chapter(
        "latency",
        "How soon a Service works",
        """
        A Service is created for a Deployment whose pods are ready, and deleted two seconds later. A pod tries the VIP
        every millisecond, and times start at the API server's response (so they may be negative: a watch event may
        arrive before the response). `idle`: nothing else changes. `steady`: ten times a second an endpoint of another
        Service is replaced. `found by selector`: the EndpointSlice is created after the Service, as for every Service
        with a selector; `made before`: it is created two seconds before the Service. kube-proxy has its default
        configuration, with at most one sync a second, and in another cluster `minSyncPeriod: 0`; under steady
        change each Service is created at a different moment of that second. The proxies take turns. The segment
        `API: the farm` is the mean that the API server reports; `nftlb and the kernel` ends with the
        transaction, and the two cannot be told apart from outside. Rules, chains and elements (including those
        of anonymous maps) are those of a whole node, with 50 other Services of two endpoints each.
        """,
    ),
    Chapter(
        "endpoints",
        "How soon an endpoint is used",
        """
        An endpoint of a Service becomes not ready, and ready again two seconds later; its Service has this many. With
        internalTrafficPolicy Local only this endpoint is on the client's node, so that no other can answer; a pod tries
        the VIP every millisecond, and times start at the API server's response. `steady`: ten times a second an
        endpoint of another Service is replaced. Processor time and bytes per change are what ten changes a second cost
        above a quiet time of three minutes, after a minute of them; bytes to etcd are those of its log, bytes to the
        node all that it receives. `rolling update`: each endpoint of a Service of five ports is replaced once, in
        slices of 100. About 6 ms of the agents' processor time per change went into looking through conntrack,
        which agents have since limited to a fiftieth of the time.
        """,
    ),
    Chapter(
        "datapath",
        "The data path",
        """
        Client, servers (NGINX, one process per pod) and kernel share the CPUs of one machine, and the subjects take
        turns in short rounds: compare figures within a row, not between rows or machines. `processor time` is the CPU
        time of the client, the servers, the proxies and the kernel's packet threads together. For every subject,
        conntrack drops closed connections after 2 s instead of 120 s. HAProxy and NGINX are TCP proxies on the node;
        `one static rule` is a ruleset with a single rule that translates to one server, the limit of what a proxy can
        do with nftables. Our subjects use the scheduler `rr`, except for `dnat, weight`, which chooses at random as
        kube-proxy does. wrk is the client. CPU time of packets is that of a thread that sends UDP to one server.
        """,
    ),
    Chapter(
        "limit",
        "The minimum",
        """
        What everything above builds on, measured in a network namespace of its own: loading a whole ruleset of ours
        in one transaction, one query or change over a netlink socket without a library, the same query as the agent
        sends it, and nftlb's responses over HTTP.
        """,
    ),
    Chapter(
        "schedulers",
        "Slow servers",
        """
        500 users, a new connection for each request, and 10 servers that wait for a second before they reply, the
        usual test of IPVS schedulers. All servers are one process of the lab, and 500 requests a second are the
        maximum. The figures show the cost of a scheduler; tests/functional/features/test_schedulers.py tests how it
        spreads connections. kube-proxy has only one scheduler.
        """,
    ),
    Chapter(
        "scale",
        "Many Services",
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
        """
        The operator is started in a cluster with all Services, as many EndpointSlices and farms, and one new Service.
        Memory and CPU time are measured when the new Service has its farm.
        """,
    ),
    Chapter(
        "cost",
        "Resource usage",
        """
        Seconds of CPU time per second, and memory, of each program; the proxies run one after another. `10 changes a
        second`: each replaces an endpoint of another Service. For 8,000 Services the scenario `scale` measures the
        programs.
        """,
    ),
    Chapter(
        "addresses",
        "Addresses that nodes announce",
        """
        Three nodes, and a client on their segment, which has no proxy of its own. MetalLB has its speakers' member
        list on, as by default, and no webhooks; its programs and kube-proxy are built from their Go modules. New
        addresses: the client asks the segment by ARP, fifty times a second, from before the Service is created, until
        the first answer; times start before the request that creates the Service, whose pods are ready, and end with
        the first try that is served; a try is begun every 10 ms, whatever becomes of earlier ones. The connections are
        others, 50 ms apart; one that takes longer than 2 s has timed out: conntrack of a node remembers a SYN that
        comes before the rules, and does not translate it when it is sent again either. Services are created 2.3 s
        apart. `steady`: ten times a second an endpoint of another Service is replaced. Moves and rolling restarts,
        while others change: the Service has externalTrafficPolicy Local, the successor of a pod is ready before that
        ends, and it serves for 5 s more; two threads connect without a pause, and a connection that is open as its
        address moves is cut. Failures: each node has a pod of the Service, so that only the address has to move;
        `power off`: the node's link goes down, and its programs are killed; each connection is given up after 0.1 s,
        and the failures begin at five different points of the half second between two questions of the nodes of
        kube-nftlb. The subjects take turns, each in a cluster of its own. During this run an idle cluster of two
        nodes, left by mistake, took 5 % of a core.
        """,
    ),
    Chapter(
        "many_addresses",
        "What many addresses cost",
        """
        The same clusters, one after another, with 500 addresses. Then 2,000 other Services are created, as fast as the
        API server takes them, and the client asks who has the addresses, one question after another; the kernel notes
        when the answers come. `quantile` is of all questions.
        """,
    ),
    Chapter(
        "routes",
        "Addresses that nodes announce by BGP",
        """
        Three nodes and two routers with FRR; kube-nftlb has BIRD, and MetalLB its native mode. The only endpoint of a
        Service becomes ready and not ready; times are from this change until the kernel of a router has a route, or
        none. The subjects take turns, each in a cluster of its own.
        """,
    ),
    Chapter(
        "status",
        "How soon kubectl get farms is right",
        """
        Endpoints are added to these Services, one after another, and removed again. Times are from the last node whose
        nftables has the change until the farm's status has that number of backends, and until it says besides that all
        nodes have it; `quantile` is of all changes of a run. With the engine nftlb only endpoints that are added count:
        it replaces the rules of a farm, and the kernel does not tell which endpoints the old ones had.
        """,
    ),
)

ADDRESSES = """
Addresses of Services of type LoadBalancer, which three nodes announce by ARP on the client's own segment: kube-nftlb
with each of its engines, and MetalLB in L2 mode beside kube-proxy in nftables mode, by default and with
`minSyncPeriod: 0`. A node that answers for an address may not serve it yet: from the first answer on the client
connects twenty times to each new address, one connection after another, and tries every 10 ms until it is served.
Times are medians, with the lowest and the highest of n values in brackets; of connections that fail the table has
all, of all. How all of it is measured is [below](#all-figures), with the scenarios `addresses`, `many_addresses` and
`routes`.
"""

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
