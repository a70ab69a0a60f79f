"""The statuses of GatewayClasses."""

import re
from collections.abc import Iterable
from typing import Final

from kube_nftlb.api.gateway.gateway import GatewayClass
from kube_nftlb.operator.gateway.listeners import Problem
from kube_nftlb.operator.gateway.objects import CONTROLLER
from kube_nftlb.operator.gateway.status import judged
from kube_nftlb.operator.gateway.wanted import ClassStatus
from kube_nftlb.prose import some_of

FEATURES: Final = tuple(
    sorted(
        (
            "Gateway",
            "GatewayAddressEmpty",
            "GatewayStaticAddresses",
            "ListenerSet",
            "ReferenceGrant",
            "TCPRoute",
            "UDPRoute",
        )
    )
)
"""The features of Gateway API that we have, by its own names for them."""
_OF_ROUTABILITY: Final = ("GatewayAddressRoutability", "GatewayAddressRoutabilityCluster")
"""Those that we have if addresses have a routability."""

VERSIONS: Final = ("1.6", "1.7")
"""The versions of Gateway API whose CustomResourceDefinitions have been read."""

_VERSION: Final = re.compile(r"v(\d+\.\d+)\.\d+")


def is_ours(found: GatewayClass) -> bool:
    """Return True if the Gateways of a class are ours."""
    return found.spec.controller_name == CONTROLLER


def refused(found: GatewayClass) -> Problem | None:
    """Return why a class of ours is not accepted."""
    if found.spec.parameters_ref is None:
        return None
    return Problem("InvalidParameters", "spec.parametersRef is not supported: remove it")


def class_status(found: GatewayClass, versions: Iterable[str], *, routability: bool = False) -> ClassStatus:
    """Return the status of a class of ours. ``versions`` are of the CustomResourceDefinitions; "" of one without.

    ``routability``: that of Gateways has the routability of addresses.
    """
    generation = found.metadata.generation
    good = Problem("Accepted", "its Gateways are served for TCP and UDP")
    supported = Problem("SupportedVersion", f"supported are {' and '.join(VERSIONS)}")
    unsupported: Problem | None = None
    if others := sorted(each or "unknown" for each in versions if not _is_supported(each)):
        message = f"the CustomResourceDefinitions are of version {some_of(others)}; {supported.message}"
        unsupported = Problem("UnsupportedVersion", message)
    conditions = (
        judged("Accepted", refused(found), good, generation),
        judged("SupportedVersion", unsupported, supported, generation),
    )
    return ClassStatus(conditions, tuple(sorted((*FEATURES, *(_OF_ROUTABILITY if routability else ())))))


def _is_supported(version: str) -> bool:
    found = _VERSION.match(version)
    return found is not None and found[1] in VERSIONS
