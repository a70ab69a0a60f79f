"""An nftlb without a kernel. ``tests/contract`` puts the same requests to it and to the real one, and compares."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.layout import FarmRules, IngressRules, MapEntry
from kube_nftlb.nftlb.readback import BaseRules, TimedSession
from tests.fakes.nft import FakeNft, FakeTableReader

KEY = "the-key"

_FARM_DEFAULTS = {
    "family": "ipv4",
    "virtual-addr": "",
    "virtual-ports": "",
    "source-addr": "",
    "mode": "snat",
    "protocol": "tcp",
    "scheduler": "rr",
    "sched-param": "none",
    "persistence": "none",
    "persist-ttl": "60",
    "helper": "none",
    "log": "none",
    "log-rtlimit": "0/second",
    "mark": "0x0",
    "priority": "1",
    "state": "up",
    "limits-ttl": "120",
    "new-rtlimit": "0/second",
    "new-rtlimit-burst": "0",
    "rst-rtlimit": "0/second",
    "rst-rtlimit-burst": "0",
    "est-connlimit": "0",
    "tcp-strict": "off",
    "queue": "-1",
    "verdict": "log drop accept",
    "intra-connect": "off",
    "oface": "",
}
_NEVER_SHOWN = ("oface", "iface", "ether-addr")
"""What it takes of farms, addresses and backends, and does not return."""
_BACKEND_DEFAULTS = {
    "ip-addr": "",
    "port": "",
    "weight": "1",
    "priority": "1",
    "mark": "0x0",
    "est-connlimit": "0",
    "state": "up",
}
_VALUES = {
    "mode": ("snat", "dnat", "dsr", "local"),
    "scheduler": ("rr", "weight", "hash", "symhash"),
}


PATCHED = "nftlb/1.0.7+kube-nftlb.7"


class FakeNftlb:
    """Farms in memory, merged as nftlb merges them; every request is kept in ``requests``."""

    def __init__(self) -> None:
        self.farms: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.reachable = True
        self.key = KEY
        self.deadly: set[str] = set()
        """Texts in a request over which it ends; it is restarted at once, with the farms of its start-up file."""
        self.hang_s = 0.0
        """Time in seconds that it hangs over such a request before it ends."""
        self.refuses: set[str] = set()
        """Texts in a change that it refuses."""
        self.loses: dict[str, bool] = {}
        """Texts in a change whose answer is lost, once; True: after it was carried out."""
        self.ends = 0
        self.startup_file: Path | None = None
        self.key_file: Path | None = None
        """Gets the key of each start."""
        self.version = PATCHED
        """The header Server of its answers; empty for an nftlb without patches."""

    @property
    def changes(self) -> list[tuple[str, str]]:
        """The requests that were not just questions."""
        return [(method, path) for method, path in self.requests if method != "GET"]

    def transport(self) -> httpx.MockTransport:
        """For the client's ``transport``."""

        async def handle(request: httpx.Request) -> httpx.Response:
            if not self.reachable:
                raise httpx.ConnectError("connection refused", request=request)
            if request.headers.get("Key") != self.key:
                return httpx.Response(401, headers={"Server": self.version})
            told = f"{request.method} {request.url.path} {request.content.decode()}"
            if request.method != "GET" and any(text in told for text in self.refuses):
                return httpx.Response(500, text='{"response": "no"}', headers={"Server": self.version})
            if request.method != "GET" and any(text in told for text in self.deadly):
                await asyncio.sleep(self.hang_s)
                self.end()
                raise httpx.ReadError("connection reset", request=request)
            if request.method != "GET" and (lost := next((text for text in self.loses if text in told), None)):
                if self.loses.pop(lost):
                    self.answer(request.method, request.url.path, request.content)
                raise httpx.ReadError("connection reset", request=request)
            status, text = self.answer(request.method, request.url.path, request.content)
            return httpx.Response(status, text=text, headers={"Server": self.version})

        return httpx.MockTransport(handle)

    def end(self) -> None:
        """End, and start anew."""
        self.ends += 1
        self.farms.clear()
        if self.startup_file is not None and self.startup_file.exists():
            self._merge(json.loads(self.startup_file.read_text()))
        self.key = f"{KEY}-{self.ends}"
        if self.key_file is not None:
            self.key_file.write_text(self.key)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        """Status and body of the answer to a request."""
        self.requests.append((method, path))
        parts = path.strip("/").split("/")
        match method, parts:
            case "GET", ["farms"]:
                return 200, json.dumps({"farms": [self._shown(farm) for farm in self.farms.values()]})
            case "GET", ["farms", name]:
                if name not in self.farms:
                    return 500, '{"response": "invalid request"}'
                return 200, json.dumps({"farms": [self._shown(self.farms[name])]})
            case (("POST" | "PUT"), ["farms"]):
                return self._merge(json.loads(body))
            case "DELETE", ["farms"]:
                self.farms.clear()
                return 200, '{"response": "success"}'
            case "DELETE", ["farms", name]:
                return self._gone(self.farms, name)
            case "DELETE", ["farms", name, ("backends" | "addresses") as kind, entry]:
                return self._gone(self.farms.get(name, {}).get(kind, {}), entry)
        return 404, '{"response": "unknown"}'

    def _merge(self, document: Mapping[str, Any]) -> tuple[int, str]:
        text = "success"
        for raw in document["farms"]:
            farm = self.farms.setdefault(
                raw["name"], {**_FARM_DEFAULTS, "name": raw["name"], "addresses": {}, "backends": {}}
            )
            for key, value in raw.items():
                if key == "addresses":
                    for entry in value:
                        farm["addresses"].setdefault(entry["name"], {}).update(entry)
                elif key == "backends":
                    for entry in value:
                        if entry.get("action") == "delete":
                            del farm["backends"][entry["name"]]
                        else:
                            farm["backends"].setdefault(entry["name"], dict(_BACKEND_DEFAULTS)).update(entry)
                elif key in farm:
                    if value not in _VALUES.get(key, (value,)):
                        text += f". Parsing unknown value '{value}' in '{key}', using default '{_FARM_DEFAULTS[key]}'"
                        farm[key] = _FARM_DEFAULTS[key]
                    else:
                        farm[key] = value
                else:
                    return 500, json.dumps({"response": f"error parsing buffer. Unknown key '{key}'"})
        return 200, json.dumps({"response": text})

    @staticmethod
    def _gone(entries: dict[str, Any], name: str) -> tuple[int, str]:
        if entries.pop(name, None) is None:
            return 404, '{"response": "unknown"}'
        return 200, '{"response": "success"}'

    @staticmethod
    def _shown(farm: Mapping[str, Any]) -> dict[str, Any]:
        def shown(entry: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in entry.items() if key not in _NEVER_SHOWN}

        return {
            **shown({key: value for key, value in farm.items() if (key, value) != ("intra-connect", "off")}),
            "addresses": [{**shown(entry), "used": "1"} for entry in farm["addresses"].values()],
            "backends": [shown(entry) for entry in farm["backends"].values()],
            "policies": [],
        }


class FakeKernel(FakeTableReader):
    """The kernel under a ``FakeNftlb``: what nftlb would have built, less what a test has broken."""

    def __init__(self, nftlb: FakeNftlb, nft: FakeNft) -> None:
        super().__init__(nft, lambda: len(nftlb.changes))
        self._nftlb = nftlb
        self.refused: set[str] = set()
        """Farms that the kernel does not take."""
        self.stuck: dict[str, objects.Farm] = {}
        """Farms whose changes the kernel does not take, as it has them."""

    def endpoints_of(self, name: str) -> set[str]:
        """The addresses to which the kernel sends connections of a farm."""
        return {each.ip for each in self._rules(name).targets}

    def _farms(self) -> dict[str, objects.Farm]:
        return objects.parse(json.loads(self._nftlb.answer("GET", "/farms", b"")[1]))

    def _rules(self, name: str) -> FarmRules:
        farm = self.stuck.get(name) or self._farms().get(name)
        if farm is None or name in self.refused:
            return FarmRules(frozenset(), frozenset(), frozenset())
        return layout.expected(farm)

    def stick(self, name: str) -> None:
        """Take no more changes of a farm."""
        self.stuck[name] = self._farms()[name]

    async def rules_of(self, farm: str, family: layout.TableFamily, wanted: frozenset[MapEntry]) -> FarmRules:
        rules = self._rules(farm)
        return FarmRules(rules.listeners & wanted, rules.scheduled, rules.targets)

    async def ingress_of(self, farm: str, wanted: frozenset[MapEntry]) -> IngressRules:
        if (raw := self._nftlb.farms.get(farm)) is None:
            return IngressRules(frozenset(), frozenset())
        found = self._farms()[farm]
        addresses = {
            name: replace(each, interface=raw["addresses"][name].get("iface", ""))
            for name, each in found.addresses.items()
        }
        backends = {
            name: replace(each, options={"ether-addr": raw["backends"][name].get("ether-addr", "")})
            for name, each in found.backends.items()
        }
        rules = layout.expected_ingress(replace(found, addresses=addresses, backends=backends))
        return IngressRules(rules.listeners & wanted, rules.macs)

    async def listeners(self, family: layout.TableFamily) -> set[MapEntry]:
        farms = self._farms() | self.stuck
        return {
            listener
            for name, farm in farms.items()
            if layout.family(farm) == family
            for listener in self._rules(name).listeners
        }

    async def base_rules(self, family: layout.TableFamily) -> BaseRules:
        return BaseRules(set(layout.BASE_CHAINS), dict(layout.BASE_RULES))

    async def full_marks(self, family: layout.TableFamily, farm: str) -> dict[int, int]:
        return {target.mark: target.mark for target in self._rules(farm).targets}

    async def timed_sessions(self, family: layout.TableFamily, map_: str) -> list[TimedSession]:
        return []

    async def sessions(self, family: layout.TableFamily, map_: str) -> dict[bytes, int]:
        return {}
