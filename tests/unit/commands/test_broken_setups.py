"""Whatever is wrong with kubeconfig, API server, rights or installation, a user reads one sentence; the status is 3."""

import http.server
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kube_nftlb.cli import app

COMMANDS = (
    ("status",),
    ("why",),
    ("why", "web"),
    ("get", "web"),
    ("top", "--once"),
    ("drain", "web"),
    ("undrain", "web"),
    ("release-addresses",),
    ("sysdump",),
    ("trace", "10.0.0.1", "10.96.0.10:80"),
    ("status", "--service", "default/web"),
    ("preflight",),
    ("version",),
)
WITHOUT_FARMS = ("trace", "preflight", "release-addresses")
"""Commands that need no definition of ours."""
SERVICE = json.dumps(
    {"metadata": {"name": "web", "namespace": "default", "resourceVersion": "1"}, "spec": {}, "items": [],
     "gitVersion": "v1.36.3"}
).encode()  # fmt: skip


def kubeconfig(server: str, **cluster: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "far", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "me", "user": {"token": "secret"}}],
            "contexts": [{"name": "far", "context": {"cluster": "far", "user": "me"}}],
            "current-context": "far",
        }
    )


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has read enough closes the connection."""


def answers(status: int, reason: str, body: bytes | None = None) -> type[http.server.BaseHTTPRequestHandler]:
    told = {"kind": "Status", "code": status, "reason": reason, "message": f"the server says {reason}"}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(told).encode() if body is None else body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    return Handler


class Empty(answers(200, "", SERVICE)):  # type: ignore[misc]  # a class that is made
    """A cluster without our definitions."""

    def do_GET(self) -> None:  # noqa: N802 - its name there
        if self.path.startswith("/apis/kube-nftlb.io"):
            self.send_error(404)
        else:
            super().do_GET()


class Half(answers(200, "", SERVICE)):  # type: ignore[misc]  # a class that is made
    """A server that ends while it answers."""

    def end_headers(self) -> None:
        self.send_header("Content-Length", str(len(SERVICE) + 1))
        super().end_headers()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """API servers, each with a defect of its own, by what it is."""
    handlers = {
        "unauthorized": answers(401, "Unauthorized"),
        "forbidden": answers(403, "Forbidden"),
        "empty": Empty,
        "broken": answers(500, "InternalError"),
        "portal": answers(200, "", b"<html>please log in</html>"),
        "nothing": answers(200, "", b""),
        "crashed": answers(500, "", b"out of memory"),
        "half": Half,
        "plain": answers(200, ""),
    }
    started = {name: Server(("127.0.0.1", 0), each) for name, each in handlers.items()}
    key = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", f"{key}.crt", "-subj", "/CN=other", "-days", "2"]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{key}.crt", key)
    started["stranger"] = Server(("127.0.0.1", 0), answers(200, ""))
    started["stranger"].socket = tls.wrap_socket(started["stranger"].socket, server_side=True)
    for server in started.values():
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield {
        name: f"{'https' if name in ('stranger', 'plain') else 'http'}://127.0.0.1:{server.server_port}"
        for name, server in started.items()
    }
    for server in started.values():
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def no_other_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)


def sentence(*words: str) -> str:
    """Run a command that cannot be answered, and return its one sentence."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 3, (done.output, done.exception)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    line = done.stderr.strip()
    assert line.startswith("kube-nftlb: ")
    for python in ("Traceback", "Error(", "Warning", "Exception", "Errno", "<class", " object at "):
        assert python not in line
    return line


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("unauthorized", "the API server refuses (401): the server says Unauthorized"),
        (
            "forbidden",
            "refuses (403): the server says Forbidden; docs/operations.md lists the rights that each command needs",
        ),
        ("broken", "500 InternalError"),
        ("portal", "is it a Kubernetes API server?"),
        ("nothing", "is it a Kubernetes API server?"),
        ("crashed", "500: out of memory"),
        ("half", "the connection was closed in the middle of the answer"),
        ("stranger", "TLS: self"),
        ("plain", "TLS: wrong version number"),
    ],
)
def test_an_api_server_that_does_not_answer(
    command: tuple[str, ...], server: str, expected: str, servers: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(kubeconfig(servers[server]))
    if (command[0], server) == ("trace", "forbidden"):
        expected = "you may not list Nodes: say with --node where 10.0.0.1 connects"
    assert expected in sentence(*command, "--kubeconfig", str(tmp_path / "config"))


@pytest.mark.parametrize("command", [words for words in COMMANDS if words[0] not in WITHOUT_FARMS])
def test_a_cluster_without_kube_nftlb(command: tuple[str, ...], servers: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config").write_text(kubeconfig(servers["empty"]))
    told = CliRunner().invoke(app, [*command, "--kubeconfig", str(tmp_path / "config")])
    assert told.exit_code == 3
    assert re.search(r"does not know nftlb\w+\.kube-nftlb\.io; is kube-nftlb installed there\?", told.stderr)
    assert len(told.stderr.splitlines()) == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/login", "interactiveMode": "Never"}
BROKEN: list[tuple[str, str]] = [
    (
        yaml.safe_dump(
            {**yaml.safe_load(kubeconfig("https://h")), "users": [{"name": "me", "user": {"exec": PLUGIN}}]}
        ),
        "the login failed: No such file or directory: '/no/such/login'",
    ),
    ("", "cannot be used"),
    ("{", "cannot be used"),
    ("\x00\xff", "cannot be used"),
    ("just text", "cannot be used"),
    (kubeconfig("https://h").replace("user: me", "user: nobody"), "names a user 'nobody' that it does not have"),
    ("[1, 2]", "cannot be used"),
    ("clusters: 7", "cannot be used"),
    (yaml.safe_dump({**yaml.safe_load(kubeconfig("https://h")), "clusters": []}), "names a cluster 'far' that"),
    (yaml.safe_dump({**yaml.safe_load(kubeconfig("https://h")), "contexts": []}), "it has no context 'far', but none"),
    (yaml.safe_dump({**yaml.safe_load(kubeconfig("https://h")), "current-context": "gone"}), "gone"),
    (kubeconfig("192.0.2.1"), "does not begin with https://"),
    (kubeconfig("https://192.0.2.1", **{"certificate-authority": "/no/such/ca.crt"}), "/no/such/ca.crt"),
    (kubeconfig("https://192.0.2.1", **{"certificate-authority-data": "bm90IGEgY2VydA=="}), "cannot be used"),
    (kubeconfig("https://192.0.2.1", **{"certificate-authority-data": "no base64"}), "cannot be used"),
    (kubeconfig("https://no-such-host.invalid"), "no-such-host.invalid"),
    (kubeconfig(f"https://127.0.0.1:{free_port()}"), "connection refused"),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
@pytest.mark.parametrize("command", [("status",), ("trace", "10.0.0.1", "10.96.0.10:80"), ("version",)])
def test_a_kubeconfig_that_cannot_be_used(command: tuple[str, ...], text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    assert expected in sentence(*command, "--kubeconfig", str(tmp_path / "config"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_kubeconfig(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "there is no kubeconfig ~/.kube/config: --kubeconfig or $KUBECONFIG names one" in sentence(*command)
    assert "there is no kubeconfig /nowhere" in sentence(*command, "--kubeconfig", "/nowhere")
    monkeypatch.setenv("KUBECONFIG", "/gone")
    assert "there is no kubeconfig /gone" in sentence(*command)
    (tmp_path / "config").write_text(kubeconfig("https://192.0.2.1"))
    monkeypatch.setenv("KUBECONFIG", f"/gone:{tmp_path / 'config'}")
    assert "it has no context 'near', but far" in sentence("--context", "near", *command)


def test_in_a_pod_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert "the pod's service account cannot be used" in sentence("status")


def test_a_kubeconfig_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    assert sentence("status", "--kubeconfig", str(tmp_path / "config")).endswith("cannot be used: it is not text")


def test_a_node_without_nftlb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_NFTLB_RUN_DIR", str(tmp_path))
    assert sentence("nftlb", "GET", "/farms").endswith("nftlb.key: no such file or directory")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("status", "-o", "xml"), "'xml' is not one of"),
        (("--context",), "--context has no value, or no command behind it"),
        (("--context", "far"), "--context has no value, or no command behind it"),
        (("render", "-f", "/nowhere"), "cannot read /nowhere: no such file or directory"),
        (("render", "-f", "not-text"), "cannot read not-text: it is not text"),
    ],
)
def test_a_wrong_command_line(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    (tmp_path / "not-text").write_bytes(b"\xff\xfe\x00")
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 2
    assert expected in done.stderr
    assert "Errno" not in done.stderr
    assert "Value error" not in done.stderr
