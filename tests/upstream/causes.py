"""The causes of failed tests, where somebody has found them. The records have only what the tests say."""

import re

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"LoadBalancers ExternalTrafficPolicy: Local .* should only target nodes with endpoints",
        (
            "the test asks for the health of a Service at all addresses of a node, also IPv6 ones for an IPv4 Service; "
            "in nftables mode kube-proxy answers at the node's primary address of the Service's own family only"
        ),
    ),
)
"""Regular expressions of test names, and the cause."""


def of(test: str) -> str:
    """Return the cause of a test's failure, or nothing."""
    return next((cause for expression, cause in _CAUSES if re.search(expression, test)), "")
