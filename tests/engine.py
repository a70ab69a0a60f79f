"""The engine that serves what a test makes. Tests marked ``engines`` run once with each, beside each other in one lab.

KUBE_NFTLB_TEST_ENGINE, nftlb or nftables, has all tests run with that engine alone.
"""

import os
from collections.abc import Mapping
from typing import Any

from kube_nftlb.api.farm import engines

_ONLY = os.environ.get("KUBE_NFTLB_TEST_ENGINE")
BOTH = (_ONLY,) if _ONLY else ("nftlb", "nftables")
"""The engines that a test marked ``engines`` runs with."""
DEFAULT = BOTH[0]
"""The engine of all other tests, and of the labs' Services that ask for none."""
OPERATOR = {"KUBE_NFTLB_DEFAULT_ENGINE": "auto" if DEFAULT == "nftables" else DEFAULT}
"""The setting of the labs' operators; with auto, what only nftlb can serve is left to it."""
GATEWAYS = {"KUBE_NFTLB_GATEWAY_ENGINE": _ONLY or "nftables"}
"""The same for the farms of routes, which have no engine of their own."""

_current = DEFAULT


def current() -> str:
    """The engine of the test that runs."""
    return _current


def use(name: str) -> None:
    """Have the manifests that are built from now on ask for this engine, if it is not the default."""
    global _current  # noqa: PLW0603 - one test runs at a time in a process
    _current = name


def chosen(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The field of a farm that is written by hand; none if it needs none, or the engine could not serve it."""
    if _current == "nftlb" or "engine" in spec or engines.lacking(spec) is not None:
        return {}
    return {"engine": _current}


def annotation() -> dict[str, str]:
    """The annotation of a Service, its prefix left out; none for the default engine."""
    return {} if _current == DEFAULT else {"engine": _current}
