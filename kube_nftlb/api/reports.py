"""How often statuses are written while endpoints change, so that the API server can take all of them. No I/O.

Agents report what they have programmed, and the operator writes the statuses of farms once they have: both wait longer
the more changes there are.
"""

import math

INTERVAL_S = 0.25
"""The minimum time in seconds between two reports in a cluster of one node."""
_CALM_PER_S = 5.0
"""The rate of changes up to which this is the interval."""
_BUSY_S = 3.0
"""The interval in seconds to which more changes stretch it."""
_ON_THE_WAY_S = 0.5
"""The time in seconds that a report and what follows from it may take."""
_FIRST_PER_S = 500.0
"""The rate at which the nodes of a cluster begin to report a single change."""


def report_interval_s(nodes: int, changes_per_s: float = 0.0, interval_s: float = INTERVAL_S) -> float:
    """Return the minimum time in seconds between two reports of a node.

    With the square root of the number of nodes both grow: the interval, and the number of reports that the API server
    gets in a second. Above 5 changes per second the interval grows with them too, up to 3 s: each report then stands
    for more of them.
    """
    return _stretched(interval_s * math.sqrt(max(nodes, 1)), changes_per_s, _BUSY_S)


def patience_s(calm_s: float, changes_per_s: float) -> float:
    """Return the time in seconds that the status of a farm waits for the reports of the nodes.

    It is ``calm_s`` up to 5 changes per second, and grows above that as the interval between reports does. So at ten
    changes per second they still come first, and one write is enough for a change.
    """
    return _stretched(calm_s, changes_per_s, _BUSY_S + _ON_THE_WAY_S)


def _stretched(calm_s: float, changes_per_s: float, most_s: float) -> float:
    return max(calm_s, min(calm_s * max(1.0, changes_per_s - _CALM_PER_S + 1.0), most_s))


def report_spread_s(nodes: int) -> float:
    """Return the time in seconds over which the nodes spread their reports of one change."""
    return nodes / _FIRST_PER_S
