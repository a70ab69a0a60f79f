"""The keys and values of nftlb's maps as the kernel has them, in bytes. No I/O."""

import ipaddress

from kube_nftlb.nftlb import layout, objects


def parse_mac(data: bytes) -> str:
    """Parse a MAC address from a value padded to 4 bytes. Return it as text."""
    return data[:6].hex(":")


def listener_key(listener: layout.MapEntry) -> bytes:
    """Return a map's key as the kernel has it: each part padded to 4 bytes."""
    ip = ipaddress.ip_address(listener.ip).packed
    port = b"" if _whole(listener.map) else listener.port.to_bytes(2, "big") + b"\0\0"
    return bytes([listener.protocol, 0, 0, 0]) + ip + port


def parse_listener(map_: str, key: bytes, chain: str) -> layout.MapEntry:
    """Parse an element from its key and chain."""
    if _whole(map_):
        return layout.MapEntry(map_, key[0], _address(key[4:]), 0, chain)
    return layout.MapEntry(map_, key[0], _address(key[4:-4]), int.from_bytes(key[-4:-2], "big"), chain)


def _address(packed: bytes) -> str:
    # The module ipaddress takes twice as long, and of these there are tens of thousands.
    return ".".join(map(str, packed)) if len(packed) == 4 else str(ipaddress.ip_address(packed))


def _whole(map_: str) -> bool:
    return not map_.endswith(layout.BY_PORT) and not map_.startswith(layout.INGRESS_MAP)


_FIELD_BYTES = {"port": 2, "mac": 6}


def session_text(persistence: str, table: layout.TableFamily, key: bytes) -> str:
    """Return a key of a map of sessions in the syntax of nft(8). Several parts are padded to 4 bytes each."""
    parts = []
    for word in persistence.split():
        size = _FIELD_BYTES.get(word[3:], 16 if table == "ip6" else 4)
        part, key = key[:size], key[-(-size // 4) * 4 :]
        if word.endswith("ip"):
            parts.append(_address(part))
        elif word.endswith("port"):
            parts.append(str(int.from_bytes(part, "big")))
        else:
            parts.append(part.hex(":"))
    return " . ".join(parts)


def parse_target(mark: bytes, data: bytes) -> layout.Target:
    """Parse an element of a farm's map from ct mark to address and port."""
    ip = data[:-4] if len(data) in (8, 20) else data
    port = int.from_bytes(data[-4:-2], "big") if len(data) in (8, 20) else 0
    return layout.Target(parse_mark(mark), _address(ip), port)


def parse_mark(mark: bytes) -> int:
    """Parse the backend's part of a connection mark, without the bit for masquerading."""
    return int.from_bytes(mark, "little") & objects.MARK_LAST
