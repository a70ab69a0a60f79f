"""IP addresses as people write them, and read them in messages and URLs."""


def bracketed(ip: str) -> str:
    """Return an address as it stands before a port: an IPv6 address in brackets (RFC 3986)."""
    return f"[{ip}]" if ":" in ip else ip


def with_port(ip: str, port: int | str) -> str:
    """Return an address with a port, such as ``192.0.2.1:80`` or ``[2001:db8::1]:80``."""
    return f"{bracketed(ip)}:{port}"
