"""One colour per subject, the same on every chart. Computation only."""

from typing import Final

from benchmarks.subjects import EAGER, KUBE_PROXY, METALLB, METALLB_EAGER, NFTABLES, NFTLB

_OF_SUBJECT: Final = {
    # Longer names first, as shorter ones begin them.
    NFTABLES: "#2f8f4e",
    METALLB_EAGER: "#5e3c99",
    METALLB: "#c51b7d",
    EAGER: "#8c2d04",
    KUBE_PROXY: "#e08214",
    NFTLB: "#1f6fb4",
    "one static rule": "#7f7f7f",
    "direct to a pod": "#b5b5b5",
    "HAProxy": "#7b4ea3",
    "NGINX": "#8c564b",
}
_OTHERS: Final = "#d46fb0"

NAMES: Final = {
    NFTLB: "kube-nftlb, engine nftlb",
    NFTABLES: "kube-nftlb, engine nftables",
    KUBE_PROXY: "kube-proxy",
    EAGER: "kube-proxy, minSyncPeriod 0",
    METALLB: "MetalLB, kube-proxy",
    METALLB_EAGER: "MetalLB, kube-proxy, minSyncPeriod 0",
}
"""The names of the main subjects on charts and in the table of the first screen."""


def of(subject: str) -> str:
    """Return the colour of a subject, which a mode or scheduler may follow."""
    return next((colour for name, colour in _OF_SUBJECT.items() if subject.startswith(name)), _OTHERS)
