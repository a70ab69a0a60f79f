"""The engine that tests on real parts run with: KUBE_NFTLB_TEST_ENGINE, nftlb or nftables.

With nftables, what only nftlb can serve is left to nftlb, as with the chart's ``defaults.engine: auto``.
"""

import os
from collections.abc import Mapping
from typing import Any

from kube_nftlb.api.farm import engines

ENGINE = os.environ.get("KUBE_NFTLB_TEST_ENGINE") or "nftlb"

OPERATOR = {"KUBE_NFTLB_DEFAULT_ENGINE": "auto" if ENGINE == "nftables" else ENGINE}
"""The setting of the operator, for Services."""


def chosen(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The field of a farm that is written by hand; none for the default."""
    if ENGINE == "nftlb" or "engine" in spec or engines.lacking(spec) is not None:
        return {}
    return {"engine": ENGINE}
