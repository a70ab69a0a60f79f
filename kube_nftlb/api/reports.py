"""How often the agents of a cluster report, so that the API server can take the reports of all of them. No I/O."""

import math

INTERVAL_S = 0.25
"""The minimum time in seconds between two reports in a cluster of one node."""
_CALM_PER_S = 5.0
"""The rate of changes up to which this is the interval."""
_BUSY_S = 3.0
"""The interval in seconds to which more changes stretch it."""
_FIRST_PER_S = 500.0
"""The rate at which the nodes of a cluster begin to report a single change."""


def report_interval_s(nodes: int, changes_per_s: float = 0.0, interval_s: float = INTERVAL_S) -> float:
    """Return the minimum time in seconds between two reports of a node.

    With the square root of the number of nodes both grow: the interval, and the number of reports that the API server
    gets in a second. Above 5 changes per second the interval grows with them too, up to 3 s: each report then stands
    for more of them.
    """
    own_s = interval_s * math.sqrt(max(nodes, 1))
    busy_s = own_s * max(1.0, changes_per_s - _CALM_PER_S + 1.0)
    return max(own_s, min(busy_s, _BUSY_S))


def report_spread_s(nodes: int) -> float:
    """Return the time in seconds over which the nodes spread their reports of one change."""
    return nodes / _FIRST_PER_S
