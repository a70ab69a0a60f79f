"""The options that kubectl has too, and the names that users give, from the command line to the API server."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kube_nftlb.cli import app
from kube_nftlb.commands import exits


class Server(http.server.ThreadingHTTPServer):
    """An API server that refuses everything, after ``delay_s``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.impersonated: list[list[tuple[str, str]]] = []
        self.delay_s = 0.0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up has closed the connection: that must not be in what a later test prints."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        time.sleep(self.server.delay_s)
        found = [(key, value) for key, value in self.headers.items() if key.startswith("Impersonate-")]
        self.server.impersonated.append(found)
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "a", "user": {"as": "jane"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield server
        server.shutdown()


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [("Impersonate-User", "jane")]),
        ("--as joe --as-uid 7", [("Impersonate-User", "joe"), ("Impersonate-Uid", "7")]),
        (
            "--as-group a --as-group=b",
            [("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")],
        ),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_users_are_impersonated_as_with_kubectl(
    server: Server, options: str, expected: list[tuple[str, str]], *, before: bool
) -> None:
    words = [*options.split(), "version"] if before else ["version", *options.split()]
    assert run(*words).exit_code == exits.CANNOT_TELL
    assert server.impersonated == [expected]


def test_a_user_without_a_name_is_not_the_one_who_logs_in(server: Server) -> None:
    done = run("version", "--as", "")
    assert done.exit_code == exits.USAGE
    assert "--as, --as-uid and --as-group must not be empty" in done.stderr
    assert server.impersonated == []


def test_an_answer_is_waited_for_no_longer_than_the_option_says(server: Server) -> None:
    server.delay_s = 5
    began = time.monotonic()
    done = run("version", "--request-timeout", "100ms")
    assert "no answer in time" in done.stderr
    assert time.monotonic() - began < server.delay_s
    server.delay_s = 0.2
    assert "refuses (403)" in run("version", "--request-timeout", "0").stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("drain", ""), "the name is empty: is a variable of the shell not set?"),
        (("drain", "pod/"), "the name is empty"),
        (("drain", "node/"), "the name is empty"),
        (("drain", "web?x", "-n", "shop"), "'web?x' is no name: it may have lower-case letters"),
        (("drain", "web", "-n", ""), "the namespace is empty"),
        (("undrain", ""), "the name is empty"),
        (("undrain", "web", "-n", "a/b"), "'a/b' is no namespace"),
        (("get", ""), "the name is empty"),
        (("get", "shop/"), "the name is empty"),
        (("get", "/web"), "the namespace is empty"),
        (("get", "a/b/c"), "'a/b' is no namespace"),
        (("why", ""), "the name is empty"),
        (("why", "default/"), "the name is empty"),
        (("why", "gateway/"), "the name is empty"),
        (("why", "a/b/c"), "'a/b' is no namespace"),
        (("why", "-n", ""), "the namespace is empty"),
        (("status", "-n", ""), "the namespace is empty"),
        (("status", "--service", "a/b/c"), "'a/b' is no namespace"),
        (("status", "--system-namespace", ""), "the namespace is empty"),
        (("trace", "shop/", "10.96.0.10:80"), "the name is empty"),
        (("trace", "10.0.0.1", "10.96.0.10:80", "--node", "a/b"), "'a/b' is no name of a node"),
    ],
)
def test_what_no_object_is_called_is_refused_before_anything_is_asked(
    server: Server, words: tuple[str, ...], expected: str
) -> None:
    done = run(*words)
    assert (done.exit_code, server.impersonated) == (exits.USAGE, [])
    assert expected in done.stderr
