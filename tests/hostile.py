"""Hostile values for every field of every object, and checks of what may result from them."""

import copy
import functools
import ipaddress
import random
import re
from collections.abc import Iterator
from typing import Any

from kube_nftlb.api.schema import reference

TEXTS = (
    "; flush ruleset",
    '"; flush ruleset; "',
    "} ; delete table inet kube-nftlb ; {",
    "\nflush ruleset\n",
    "x\nflush ruleset",
    "x\r\n",
    "x\0y",
    "$(reboot)",
    "`reboot`",
    "# a comment",
    "x # a comment",
    '"',
    "\\",
    "'",
    "{",
    "}",
    "%s%s%s%n",
    "../../etc/shadow",
    "/farms",
    "@inet",
    "-1",
    "0",
    "0x0",
    "0x80000001",
    "1e9",
    "99999999999999999999999",
    "1/second; drop",
    "10.0.0.1,10.0.0.2",
    "10.0.0.1/8",
    "10.0.0.01",
    "127.0.0.1",
    "0.0.0.0",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "1-65535",
    "80-",
    "80;443",
    "٣",  # a digit only to str.isdigit
    "ünïcode",
    "a\u2028b",
    "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    " ",
    "",
    " srcip",
    "srcip,dstip",
    "FNAME" * 8,
    "ANAME KNAME BNAME",
    "x" * 127,
    "x" * 100_000,
    "a.b",
    "kube-system.web--http",
)

VALUES: tuple[Any, ...] = (
    *TEXTS,
    None,
    True,
    False,
    -1,
    0,
    2**31,
    2**63,
    2**200,
    1.5,
    float("inf"),
    [],
    {},
    [None],
    ["; flush ruleset"],
    {"; flush ruleset": "x"},
    [[[[{}]]]],
)

FARM: dict[str, Any] = {
    "family": "ipv4",
    "protocol": "TCP",
    "addresses": [{"ip": "10.99.0.1", "ports": "80"}],
    "persistence": "srcip",
    "sessions": [{"client": "10.0.0.1", "backend": "a"}],
    "limits": {"new": "100/second"},
    "backends": [
        {"name": "a", "ip": "10.244.9.1", "port": 8080},
        {"name": "b", "ip": "10.244.9.2", "port": 8080},
    ],
}
"""A valid farm with an entry in every list."""

FARM_PATHS = tuple(row.path.split(".")[1:] for row in reference.rows() if row.full_path.startswith("farm.spec."))


def replaced(spec: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """Return the spec with another value at a path, in the last entry of lists; unchanged if there is no such path."""
    changed = copy.deepcopy(spec)
    node: Any = changed
    for key in path[:-1]:
        node = node.setdefault(key, {})
        node = node[-1] if isinstance(node, list) and node else node
        if not isinstance(node, dict):
            return spec
    node[path[-1]] = value
    return changed


def examples(number: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Generate specs of farms with hostile values in one or two fields, always the same."""
    chosen = random.Random(seed)  # noqa: S311 - reproducible, not secret
    for _ in range(number):
        spec = FARM
        for _ in range(chosen.choice((1, 1, 1, 2))):
            spec = replaced(spec, chosen.choice(FARM_PATHS), chosen.choice(VALUES))
        yield spec


_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_FIELDS = r"(none|((srcip|dstip|srcport|dstport|srcmac|dstmac)( (?!$)|$)){1,6})"
_RATE = r"[0-9]{1,7}/(second|minute|hour|day|week)"
# nftlb puts names in the place of these words, into a buffer of 256 bytes.
_PREFIX = r"((?!FNAME|KNAME|BNAME|ANAME|PNAME)[A-Za-z0-9 ._:/-]){0,100}"
_ON_OFF = r"(on|off)"

_PATTERNS = {
    "name": _NAME,
    "family": r"(ipv4|ipv6)",
    "ports": rf"({_NUMBER}(-{_NUMBER})?)?",
    "port": rf"({_NUMBER})?",
    "protocol": r"(tcp|udp|sctp|all)",
    "mode": r"(snat|dnat|dsr|local)",
    "scheduler": r"(rr|weight|hash|symhash)",
    "sched-param": _FIELDS,
    "persistence": _FIELDS,
    "persist-ttl": _NUMBER,
    "helper": r"[a-z0-9-]{1,16}",
    "log": r"(none|((input|forward|output)( (?!$)|$)){1,3})",
    "log-prefix": _PREFIX,
    "mark": r"0x[0-9a-f]{1,8}",
    "priority": _NUMBER,
    "weight": _NUMBER,
    "queue": rf"(-1|{_NUMBER})",
    "intra-connect": _ON_OFF,
    "tcp-strict": _ON_OFF,
    "state": r"(up|down|off)",
    "new-rtlimit": _RATE,
    "new-rtlimit-burst": _NUMBER,
    "new-rtlimit-log-prefix": _PREFIX,
    "rst-rtlimit": _RATE,
    "rst-rtlimit-burst": _NUMBER,
    "rst-rtlimit-log-prefix": _PREFIX,
    "est-connlimit": _NUMBER,
    "est-connlimit-log-prefix": _PREFIX,
    "tcp-strict-log-prefix": _PREFIX,
    "limits-ttl": _NUMBER,
    "log-rtlimit": _RATE,
    "verdict": r"((log|drop|accept)( (?!$)|$)){1,3}",
    "client": r"[0-9a-f.:]{1,45}",
    "backend": _NAME,
}
"""All keys of requests to nftlb, except those of addresses, with the pattern that their values must match."""

_ADDRESSES = ("ip-addr", "source-addr")
_NAME_MAX = {"farms": 100, "addresses": 100, "backends": 63, "sessions": 63}


def check_wire(document: Any, of: str = "farms") -> None:
    """Fail if a document has anything that must never be sent to nftlb."""
    if isinstance(document, list):
        for entry in document:
            check_wire(entry, of)
        return
    assert isinstance(document, dict), document
    for key, value in document.items():
        if isinstance(value, list):
            check_wire(value, key)
        elif key in _ADDRESSES:
            assert _is_plain_address(value), (key, value)
        else:
            assert isinstance(value, str), (key, value)
            assert key in _PATTERNS, f"add a pattern for {key!r} to {__name__}: {value!r}"
            assert re.fullmatch(_PATTERNS[key], value, re.ASCII), (key, value)
            assert key != "name" or len(value) <= _NAME_MAX[of], (of, value)


def _is_plain_address(value: Any) -> bool:
    # An empty source address means none to nftlb.
    return value == "" or (isinstance(value, str) and str(ipaddress.ip_address(value)) == value and "%" not in value)


_COMMAND = re.compile(
    r"(table inet kube-nftlb \{\}|delete table inet kube-nftlb|"
    r"(?P<verb>add|delete|flush) (?P<kind>table|chain|rule|set|map|element|ct helper) inet kube-nftlb "
    r"(?P<name>[A-Za-z0-9._-]+)(?P<rest>.*))"
)
_WORDS = re.compile(r"[A-Za-z0-9 ._:/@,{}()=!&|<>*+-]*")
_QUOTED = re.compile(r'"[A-Za-z0-9 ._:/-]{0,127}"')
_NFT_NAME_MAX = 127


def check_commands(text: str) -> None:
    """Fail unless every line is one command of plain words for libnftables, on our table."""
    for line in text.splitlines():
        _check_command(line)


@functools.lru_cache(maxsize=1000)  # most lines are those of the empty table, the same in each text
def _check_command(line: str) -> None:
    found = _COMMAND.fullmatch(line)
    assert found, line
    assert len(found["name"] or "") <= _NFT_NAME_MAX, line
    for word in re.findall(r"[A-Za-z0-9._-]+", line):
        assert len(word) <= _NFT_NAME_MAX, line
    rest = _QUOTED.sub("", found["rest"] or "")
    if found["kind"] in ("chain", "set", "map", "ct helper"):
        # Only a declaration has semicolons, and it stands in one pair of braces.
        assert rest.count("{") == rest.count("}") <= 1, line
        rest = rest.replace(";", "")
    assert _WORDS.fullmatch(rest), line
    assert rest.count("{") == rest.count("}"), line
