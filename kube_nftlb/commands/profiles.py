"""The chart's value ``profile``, and what it is short for. No I/O."""

from typing import Final, Literal

from kube_nftlb.settings import DefaultEngine, DefaultMode

ChartProfile = Literal["kube-proxy", "nftlb"]
"""The value ``profile`` of the chart."""
MODES: Final[dict[ChartProfile, DefaultMode]] = {"kube-proxy": "dnat", "nftlb": "snat"}
"""``defaults.mode`` of the chart by profile."""
ENGINES: Final[dict[ChartProfile, DefaultEngine]] = {"kube-proxy": "auto", "nftlb": "nftlb"}
"""``defaults.engine`` of the chart by profile."""
