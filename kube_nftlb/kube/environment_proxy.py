"""The proxy that the environment names for the API server, as kubectl and other programs in Go understand it.

Python's own ``urllib.request.proxy_bypass`` knows neither networks in NO_PROXY nor that loopback has no proxy.
"""

from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy that HTTPS_PROXY or HTTP_PROXY names for a URL; None if there is none for it."""
    parts, proxies = urlsplit(url), getproxies_environment()
    proxy, host = proxies.get(parts.scheme), (parts.hostname or "").lower()
    exceptions = [each.strip().lower() for each in proxies.get("no", "").split(",")]
    if not proxy or host == "localhost" or any(_excepts(each, host, parts.port) for each in ("127.0.0.0/8", "::1")):
        return None
    if any(_excepts(each, host, parts.port) for each in exceptions if each):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _excepts(exception: str, host: str, port: int | None) -> bool:
    """Return True if a part of NO_PROXY has a host: all, a network, an address, or a domain, also of one port."""
    if exception == "*":
        return True
    try:
        return ip_address(host) in ip_network(exception, strict=False)
    except ValueError:
        name, _, of_port = exception.rpartition(":")
        name = name.strip("[]") if of_port.isdigit() else exception
        if of_port.isdigit() and port not in (None, int(of_port)):
            return False
        return host == name or host.endswith(f".{name.removeprefix('*').removeprefix('.')}")
