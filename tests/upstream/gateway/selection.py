"""The tests of the Gateway API that are run, and those that are left out. Computation only."""

from kube_nftlb import __version__

PROFILES = ("GATEWAY-TCP", "GATEWAY-UDP")

_HTTP = "its Gateways listen to HTTP, and the routes that it counts or follows are HTTPRoutes"
_TLS = "it is about the certificates of HTTPS listeners"
LEFT_OUT = {
    "GatewayInvalidTLSConfiguration": _TLS,
    "GatewayModifyListeners": _HTTP,
    "GatewaySecretInvalidReferenceGrant": _TLS,
    "GatewaySecretMissingReferenceGrant": _TLS,
    "GatewaySecretReferenceGrantAllInNamespace": _TLS,
    "GatewaySecretReferenceGrantSpecific": _TLS,
    "ListenerSetAllowedNamespaceNone": _HTTP,
    "ListenerSetAllowedNamespaceSame": _HTTP,
    "ListenerSetAllowedNamespaceSelector": _HTTP,
    "ListenerSetDefaultNotAllowed": _HTTP,
    "ListenerSetHostnameConflict": "it is about host names, which TCP and UDP do not have",
    "ListenerSetProtocolConflict": _HTTP,
    "ListenerSetReferenceGrant": _TLS,
}
"""The tests of the profiles that need more than TCP and UDP, and what."""

IMPLEMENTATION = {
    "organization": "kube-nftlb",
    "project": "kube-nftlb",
    "url": "not published yet",
    "version": f"v{__version__}",
    "contact": "not published yet",
}
"""What the report says of us."""


def report_name(engine: str) -> str:
    """Return the name of an engine's report, as upstream's reports are named."""
    return f"standard-{IMPLEMENTATION['version']}-{engine}-report.yaml"
