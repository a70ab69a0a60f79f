"""Each patch of lab/nftlb, on Debian's nftlb, which has the defect, and on ours, which has it no more."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.contract.conftest import PORT

ROOT = Path(__file__).parents[2]
PATCHES = ROOT / "lab/nftlb"
LINKS = ("in0", "in1")
FAMILY = {"ipv4": ("ip", "10.0.0.{}", "10.1.0.{}"), "ipv6": ("ip6", "fd00::{}", "fd01::{}")}
SUCCESS = {"response": "success"}
LONG = 100 * "x"
BACKENDS = {"a": "0x2", "b": "0x3", "c": "0x4", "d": "0x5"}


class Daemon:
    """An nftlb that runs, with what it logs and what the kernel has of it."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._log = folder / "nftlb.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "-H", "127.0.0.1", "-P", str(PORT), "-l", "4", "-L", "2"],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "NFTLB_SERVER_KEY": "key"},
            )
        for _ in range(250):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
                return
            time.sleep(0.02)
        raise RuntimeError("nftlb does not listen")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[http.client.HTTPMessage, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body else None, {"Key": "key"})
            try:
                answer = connection.getresponse()
            except TimeoutError:
                print(self._does())
                raise
            return answer.headers, json.loads(answer.read())

    def _does(self) -> str:
        """Return what it does, for whoever reads why it does not answer: its log, and where in the kernel it waits."""
        process = Path(f"/proc/{self.process.pid}")
        where = [path.read_text(encoding="utf-8") for path in process.glob("task/*/stack")]
        sockets = (process / "net/tcp").read_text(encoding="utf-8")
        state = (process / "status").read_text(encoding="utf-8")
        return "\n".join((self._log.read_text(errors="replace"), *where, sockets, state))

    def post(self, *farms: dict[str, Any]) -> None:
        assert self.ask("POST", "/farms", {"farms": farms})[1] == SUCCESS

    def delete(self, path: str) -> None:
        assert self.ask("DELETE", f"/farms/{path}")[1] == SUCCESS

    def shown(self, name: str) -> dict[str, Any]:
        """Return a farm as GET shows it."""
        farm: dict[str, Any] = self.ask("GET", f"/farms/{name}")[1]["farms"][0]
        return farm

    @property
    def recoveries(self) -> int:
        """Number of times that nft refused a transaction, and nftlb loaded all farms anew."""
        return self._log.read_bytes().count(b"recovery in progress")

    @property
    def memory_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


@contextlib.contextmanager
def running(program: Path, folder: Path) -> Iterator[Daemon]:
    """Run an nftlb. With it goes all that the kernel has."""
    daemon = Daemon(program, folder)
    try:
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait()
        subprocess.run(["nft", "flush", "ruleset"], check=True)


def farm(
    name: str,
    family: str = "ipv4",
    number: int = 1,
    ports: tuple[str, ...] = ("80",),
    *,
    dashed: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> dict[str, Any]:
    """A farm for nftlb; ``dashed`` are options that are no Python names."""
    _, vip, pod = FAMILY[family]
    listen = {"family": family, "ip-addr": vip.format(number), "protocol": "tcp"}
    addresses = [{"name": f"{name}-{each}", **listen, "ports": each} for each in ports]
    backends = [{"name": "b", "ip-addr": pod.format(1), "port": "8080", "mark": "0x2", "state": "up"}]
    return {"name": name, "mode": "snat", **more, **dashed, "state": "up", "addresses": addresses, "backends": backends}


def dsr(name: str, family: str = "ipv4", number: int = 1, links: tuple[str, ...] = ("in0",)) -> dict[str, Any]:
    _, vip, pod = FAMILY[family]
    listen = {"family": family, "ip-addr": vip.format(number), "ports": "80", "protocol": "tcp"}
    inlet = {"ether-addr": "02:00:00:00:00:01"}
    addresses = [{"name": f"{name}-{link}", "iface": link, **inlet, **listen} for link in links]
    macs = {"ether-addr": "02:00:00:00:00:02"}
    backends = [{"name": "b", **macs, "ip-addr": pod.format(1), "port": "80", "mark": "0x2", "state": "up"}]
    return {"name": name, "mode": "dsr", "state": "up", "addresses": addresses, "backends": backends}


def nft(*arguments: str) -> str:
    """Return the output of nft; nothing where it fails."""
    return subprocess.run(["nft", *arguments], capture_output=True, text=True, check=False).stdout


def grow(daemon: Daemon, times: int, act: Any) -> int:
    """The kilobytes by which it grows when something is done so often, after the first times."""
    for _ in range(times // 5):
        act()
    before = daemon.memory_kb
    for _ in range(times):
        act()
    return daemon.memory_kb - before


@pytest.fixture
def links(private_network: None) -> Iterator[None]:  # noqa: ARG001 - a fixture is asked for by name
    for name in LINKS:
        subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    yield
    for name in LINKS:
        subprocess.run(["ip", "link", "delete", name], check=True)


_FAILS = pytest.mark.xfail(
    strict=True, raises=(AssertionError, OSError, http.client.HTTPException), reason="the defect"
)


@pytest.fixture(params=[pytest.param("debian", marks=_FAILS), "patched"])
def nftlb(
    request: pytest.FixtureRequest,
    private_network: None,  # noqa: ARG001 - a fixture is asked for by name
    patched_nftlb: Path,
    debian_nftlb: Path,
    tmp_path: Path,
) -> Iterator[Daemon]:
    """Debian's nftlb, with which every test of a patch has to fail, and ours."""
    with running(patched_nftlb if request.param == "patched" else debian_nftlb, tmp_path) as daemon:
        yield daemon


@pytest.mark.parametrize("change", ["delete", "mode", "persistence", "intra-connect"])
def test_ipv6_counters(nftlb: Daemon, change: str) -> None:
    nftlb.post(farm("one", "ipv6", 1), farm("two", "ipv6", 2))
    changes = {"mode": "dnat", "persistence": "srcip", "intra-connect": "on"}
    if change == "delete":
        nftlb.delete("one")
    else:
        nftlb.post({"name": "one", change: changes[change]})
    assert "goto nat-two" in nft("list", "map", "ip6", "nftlb", "nat-proto-services6")
    assert "vmap @nat-proto-services6" in nft("list", "chain", "ip6", "nftlb", "prerouting")
    assert nftlb.recoveries == 0


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("gone", ["ipv4", "ipv6"])
def test_ingress_families(nftlb: Daemon, gone: str) -> None:
    nftlb.post(dsr("ipv4"), dsr("ipv6", "ipv6"))
    nftlb.delete(gone)
    left, number = ("ipv6", "6") if gone == "ipv4" else ("ipv4", "")
    assert f"goto {left}" in nft("list", "map", "netdev", "nftlb", f"proto-services{number}-in0")
    assert f"vmap @proto-services{number}-in0" in nft("list", "chain", "netdev", "nftlb", "ingress-in0")
    nftlb.post(dsr(gone, gone))
    nftlb.delete(left)
    nftlb.delete(gone)
    assert (nft("list", "tables"), nftlb.recoveries) == ("", 0)


def test_recovery_counters(nftlb: Daemon) -> None:
    nftlb.post(farm("one"))
    nft("delete", "table", "ip", "nftlb")
    nftlb.post({"name": "one", "scheduler": "weight"})
    assert "goto nat-one" in nft("list", "table", "ip", "nftlb")
    nftlb.delete("one")
    assert (nft("list", "tables"), nftlb.recoveries) == ("", 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"persistence": "srcip"},
        {"new-rtlimit": "5/second", "est-connlimit": "7"},
        {"log": "forward"},
        {"source-addr": "10.9.0.1"},
    ],
    ids=["", "persistence", "limits", "log", "source-addr"],
)
def test_shared_by_addresses(nftlb: Daemon, options: dict[str, str]) -> None:
    nftlb.post(farm("other", number=2), farm("one", ports=("80", "81", "82"), dashed=options))
    nftlb.delete("one/addresses/one-81")
    nftlb.post({"name": "one", "persist-ttl": "99"})
    nftlb.post({"name": "one", "new-rtlimit": "0"})
    kept = nft("list", "map", "ip", "nftlb", "nat-proto-services")
    assert kept.count("goto nat-one") == 2
    nftlb.delete("one")
    left = nft("list", "ruleset")
    assert "goto nat-other" in left
    assert re.findall(r"\S*-one\b|10\.9\.0\.1", left) == []
    assert nftlb.recoveries == 0


@pytest.mark.parametrize(
    ("scheduler", "option", "fields"),
    [
        ("rr", "persistence", "srcip srcport dstip dstport srcmac dstmac"),
        ("hash", "sched-param", "srcip srcport dstip dstport srcmac dstmac"),
    ],
)
def test_long_keys(nftlb: Daemon, scheduler: str, option: str, fields: str) -> None:
    nftlb.post(farm("other", "ipv6", 2))
    body = {"farms": [farm("one", "ipv6", 1, scheduler=scheduler, dashed={option: fields})]}
    assert "has too long a key" in nftlb.ask("POST", "/farms", body)[1]["response"]
    assert nftlb.shown("one")["state"] == "config_error"
    nftlb.post({"name": "one", option: "srcip"})
    assert nft("list", "map", "ip6", "nftlb", "nat-proto-services6").count("goto") == 2
    assert nftlb.recoveries == 0


def test_numbers(nftlb: Daemon) -> None:
    nftlb.post(farm("one"))
    nftlb.post({"name": "one", "mark": "0x7ffff000"})
    assert nftlb.shown("one")["mark"] == "0x7ffff000"


def test_log_prefix(nftlb: Daemon) -> None:
    nftlb.post(farm(LONG, log="input", dashed={"log-prefix": "FNAME FNAME FNAME FNAME "}))
    (prefix,) = re.findall('log prefix "(.*)"', nft("list", "chain", "ip", "nftlb", f"nat-{LONG}"))
    assert prefix == f"{LONG} {LONG}"[:127]


def test_answers(nftlb: Daemon) -> None:
    farms = [{"name": f"f{number}", "scheduler": LONG} for number in range(40)]
    for _ in range(3):
        assert "unknown value" in nftlb.ask("POST", "/farms", {"farms": farms})[1]["response"]
        for each in farms:
            nftlb.delete(each["name"])


def test_sigsegv(nftlb: Daemon) -> None:
    nftlb.process.send_signal(signal.SIGSEGV)
    with contextlib.suppress(subprocess.TimeoutExpired):
        nftlb.process.wait(3)
    assert nftlb.process.returncode == -signal.SIGSEGV


def test_reset_connections(nftlb: Daemon) -> None:
    def reset() -> None:
        connection = socket.create_connection(("127.0.0.1", PORT), timeout=10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        # Until it has come to that one: it lets few wait.
        nftlb.ask("GET", "/policies")

    assert grow(nftlb, 1000, reset) < 1000


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("name", ["2048.x--http", "ip", "drop"])
def test_chain_names(nftlb: Daemon, name: str) -> None:
    nftlb.post(dsr("web", number=2), dsr(name))
    assert set(re.findall("goto (.*?)[ ,]", nft("list", "map", "netdev", "nftlb", "proto-services-in0"))) == {
        "web",
        f"_{name}",
    }
    nftlb.delete(name)
    nftlb.delete("web")
    assert (nft("list", "tables"), nftlb.recoveries) == ("", 0)


@pytest.mark.usefixtures("links")
def test_interfaces(nftlb: Daemon) -> None:
    for number in range(4):
        name = f"g{number}"
        nftlb.post(dsr(name, links=LINKS))
        nftlb.delete(f"{name}/addresses/{name}-in1")
        nftlb.delete(name)
    nftlb.post(dsr("one", links=LINKS))
    for link in LINKS:
        assert "goto one" in nft("list", "map", "netdev", "nftlb", f"proto-services-{link}")
    assert nftlb.recoveries == 0


def test_hash_none(nftlb: Daemon) -> None:
    nftlb.post(farm("one", scheduler="hash", dashed={"sched-param": "none"}))
    assert "jhash ip saddr" in nft("list", "chain", "ip", "nftlb", "filter-one")


def test_intra_connect_off(nftlb: Daemon) -> None:
    nftlb.post(farm("one"))
    assert nftlb.shown("one").get("intra-connect") == "off"


def test_helper(nftlb: Daemon) -> None:
    nftlb.post(farm("one", helper="ftp"), farm("two", number=2, helper="ftp"))
    nftlb.delete("one")
    assert 'ct helper set "ftp-tcp"' in nft("list", "chain", "ip", "nftlb", "filter-two")
    nftlb.delete("two")
    assert (nft("list", "tables"), nftlb.recoveries) == ("", 0)


def test_reset_limit(nftlb: Daemon) -> None:
    limits = {"new-rtlimit": "100/second", "new-rtlimit-burst": "50", "rst-rtlimit": "10/minute"}
    nftlb.post(farm("one", dashed=limits))
    (rule,) = re.findall("over 10/.*", nft("list", "chain", "ip", "nftlb", "filter-one"))
    assert "minute" in rule
    assert "50" not in rule
    assert nftlb.shown("one")["rst-rtlimit"] == "10/minute"
    nftlb.post({"name": "one", "rst-rtlimit": "10/hour"})
    assert "over 10/hour" in nft("list", "chain", "ip", "nftlb", "filter-one")


def test_limits_ttl(nftlb: Daemon) -> None:
    nftlb.post(farm("one", dashed={"new-rtlimit": "5/second", "rst-rtlimit": "5/second"}))
    rules = nft("list", "chain", "ip", "nftlb", "filter-one")
    assert re.findall(r"(\w+) @\S+-one", rules) == ["update", "update"]


def test_static_sessions(nftlb: Daemon) -> None:
    def elements() -> list[str]:
        return re.findall("10.9.9.9 : (0x.*?) ", nft("list", "map", "ip", "nftlb", "static-sessions-one"))

    nftlb.post(farm("one", persistence="srcip", sessions=[]))
    nftlb.post({"name": "one", "sessions": [{"client": "10.9.9.9", "backend": "b"}]})
    assert elements() == ["0x80000002"]
    nftlb.post({"name": "one", "backends": [{"name": "b", "state": "down"}]})
    assert elements() == []
    nftlb.post({"name": "one", "backends": [{"name": "b", "state": "up"}]})
    assert elements() == ["0x80000002"]
    nftlb.post({"name": "one", "backends": [{"name": "b", "mark": "0x5"}]})
    assert elements() == ["0x80000005"]
    nftlb.delete("one/backends/b")
    assert (elements(), nftlb.recoveries) == ([], 0)


def test_local_output(nftlb: Daemon) -> None:
    nftlb.post({**farm("one", dashed={"intra-connect": "on"}), "mode": "local"})
    assert "goto filter-one" in nft("list", "map", "ip", "nftlb", "output-filter-proto-services")
    nftlb.delete("one")
    assert (nft("list", "tables"), nftlb.recoveries) == ("", 0)


def test_leaks(nftlb: Daemon) -> None:
    assert grow(nftlb, 2000, lambda: nftlb.ask("GET", "/addresses")) < 1000


def test_server_header(nftlb: Daemon) -> None:
    headers, _ = nftlb.ask("GET", "/farms")
    assert headers.get("Server", "").startswith("nftlb/1.0.7+kube-nftlb.")


def test_fully_random(nftlb: Daemon) -> None:
    nftlb.post(farm("one"))
    assert "masquerade fully-random" in nft("list", "chain", "ip", "nftlb", "postrouting")


@pytest.mark.parametrize("mode", ["snat", "dnat"])
def test_new_connections(nftlb: Daemon, mode: str) -> None:
    nftlb.post({**farm("one", persistence="srcip"), "mode": mode})
    (rule,) = re.findall(".* update @persist-one .*", nft("list", "chain", "ip", "nftlb", "filter-one"))
    assert rule.split()[:6] == ["ct", "state", "new", "ct", "status", "!"]


def test_removed_backends(nftlb: Daemon) -> None:
    several = [{**farm("one")["backends"][0], "name": name, "mark": mark} for name, mark in BACKENDS.items()]
    nftlb.post({**farm("one"), "backends": several})
    nftlb.post({"name": "one", "backends": [{"name": "a", "state": "down"}]})
    before = nft("-a", "list", "ruleset")
    nftlb.delete("one/backends/a")
    assert nft("-a", "list", "ruleset") == before, "nothing was written"
    nftlb.post({"name": "one", "backends": [{"name": name, "action": "delete"} for name in "bc"]})
    assert [backend["name"] for backend in nftlb.shown("one")["backends"]] == ["d"]
    chain = nft("list", "chain", "ip", "nftlb", "nat-one")
    assert re.findall(r"(0x\w+) : 10.1.0.1", chain) == ["0x80000005"]
    assert nftlb.recoveries == 0


def test_hash_seed(nftlb: Daemon) -> None:
    nftlb.post(farm("one", scheduler="hash", dashed={"sched-param": "srcip"}))
    nftlb.post(farm("two", "ipv6", scheduler="hash", dashed={"sched-param": "srcip srcport"}))
    chains = [nft("list", "chain", "ip", "nftlb", "filter-one"), nft("list", "chain", "ip6", "nftlb", "filter-two")]
    assert [re.findall("jhash .* seed (0x[0-9a-f]+)", chain) for chain in chains] == [["0x0"], ["0x0"]]
    assert nftlb.recoveries == 0


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_neighbours(nftlb: Daemon, family: str) -> None:
    nft_family, _, pod = FAMILY[family]
    nftlb.post(farm("one", family), dsr("direct", family, 2))
    before = nft("-a", "list", "table", nft_family, "nftlb")
    assert "numgen inc" in before
    learned = "02:00:00:00:00:33"
    neighbour = [pod.format(1), "lladdr", learned, "dev", "in0", "nud", "permanent"]
    subprocess.run(["ip", "neigh", "replace", *neighbour], check=True)
    for _ in range(100):
        if learned in nft("list", "table", "netdev", "nftlb"):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("a farm in the mode dsr follows its neighbour")
    # nftlb comes to all farms of a neighbour before it answers again.
    nftlb.ask("GET", "/policies")
    assert nft("-a", "list", "table", nft_family, "nftlb") == before, "nothing was written"
    assert nftlb.recoveries == 0


@pytest.fixture
def no_interface_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is started now ends when it asks for a list of all interfaces."""
    library = tmp_path / "no_interface_list.so"
    source = "#include <stdlib.h>\nint getifaddrs(void *list) { abort(); }\n"
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compiler, input=source, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_interface_list(no_interface_list: None, nftlb: Daemon, family: str) -> None:  # noqa: ARG001 - it comes first
    nftlb.post(farm("one", family))
    assert "goto nat-one" in nft("list", "table", FAMILY[family][0], "nftlb")


@pytest.mark.parametrize(("family", "length"), [("ipv4", 24), ("ipv6", 64)])
@pytest.mark.usefixtures("links")
def test_the_interface_of_an_address_is_found(
    private_network: None,  # noqa: ARG001 - a fixture is asked for by name
    patched_nftlb: Path,
    tmp_path: Path,
    family: str,
    length: int,
) -> None:
    vip = FAMILY[family][1].format(1)
    subprocess.run(["ip", "address", "add", f"{vip}/{length}", "dev", "in1", "nodad"], check=True)
    direct = dsr("one", family)
    for option in ("iface", "ether-addr"):
        del direct["addresses"][0][option]
    with running(patched_nftlb, tmp_path) as daemon:
        daemon.post(direct)
        assert 'hook ingress device "in1"' in nft("list", "table", "netdev", "nftlb")


def test_every_patch_is_applied_and_has_a_test() -> None:
    series = (PATCHES / "series").read_text(encoding="utf-8").split()
    assert series == sorted(path.name for path in PATCHES.glob("*.patch"))
    tests = {f"test_{re.sub(r'^[0-9]+-|[.]patch$', '', name).replace('-', '_')}" for name in series}
    assert tests <= set(globals())


def test_every_patch_names_its_defect_and_touches_as_little_as_can_be() -> None:
    page = (ROOT / "docs/nftlb-defects.md").read_text(encoding="utf-8")
    for path in PATCHES.glob("*.patch"):
        text = path.read_text(encoding="utf-8")
        numbers = re.findall(r"\d+", re.findall("^Defect: (.*) of docs/nftlb-defects.md$", text, re.MULTILINE)[0])
        for number in numbers:
            assert f"\n## {number}. " in page, path.name
            assert path.name in page.split(f"\n## {number}. ")[1].split("\n## ")[0], path.name
        hunks = text[text.index("\n--- a/") :].splitlines()[1:]
        assert {line[0] for line in hunks} <= {"-", "+", "@"}, f"{path.name} has lines of context"
