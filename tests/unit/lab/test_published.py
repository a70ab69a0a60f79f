"""Published programs are taken only with the right checksum, and soon given up where they cannot be had."""

import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import build, published, versions
from lab.versions import Version

VERSION = Version(1, 37, "v1.37.2")
PROGRAMS = ("kube-apiserver", "kubectl")
CONTENT = {program: f"#!/bin/sh\necho Kubernetes v1.37.2 # {program}\n".encode() * 1000 for program in PROGRAMS}
FOLDER = "v1.37.2/bin/linux/amd64"
SUMS = {f"{FOLDER}/{program}": hashlib.sha256(content).hexdigest() for program, content in CONTENT.items()}
Answer = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


def test_all_programs_of_the_machine_have_a_checksum_or_none_is_taken() -> None:
    text = "".join(f"{checksum}  {path}\n" for path, checksum in SUMS.items())
    assert published.pinned(text, PROGRAMS, VERSION, "x86_64") == SUMS
    assert published.pinned(text, PROGRAMS, VERSION, "aarch64") is None
    assert published.pinned(text, (*PROGRAMS, "kubelet"), VERSION, "x86_64") is None
    assert published.pinned(text, PROGRAMS, Version(1, 37, "v1.37.3"), "x86_64") is None
    assert published.pinned("", PROGRAMS, VERSION, "x86_64") is None


def test_the_repository_s_checksums_are_of_versions_that_a_lab_runs() -> None:
    lines = published.SUMS.read_text().splitlines() if published.SUMS.exists() else []
    known = {
        published.path_of(program, version, machine)
        for version in versions.supported()
        for machine in published.ARCHITECTURES
        for program in published.PROGRAMS
    }
    assert [line for line in lines if line[66:] not in known or len(line.split()[0]) != 64] == []


def whole(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def truncated(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])


def another(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, content.replace(b"echo", b"evil"))


def absent(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:  # noqa: ARG001 (as the others)
    handler.send_error(404)


def second_is_truncated(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    (truncated if handler.path.endswith("kubectl") else whole)(handler, content)


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            program = self.path.rpartition("/")[2]
            if program.endswith(".sha256"):
                answer(self, SUMS[f"{FOLDER}/{program.removesuffix('.sha256')}"].encode())
            else:
                answer(self, CONTENT[program])

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_right_files_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[str, int, int | None]] = []
    with serving(whole) as site:
        monkeypatch.setenv(published.VARIABLE, site)
        published.fetch(SUMS, tmp_path, lambda *count: counted.append(count))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == CONTENT
    assert all(file.stat().st_mode & 0o111 for file in tmp_path.iterdir())
    assert counted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (another, r"/kube-apiserver has the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}, which SHA256SUMS pins"),
        (truncated, "/kube-apiserver ended after 25,500 of 51,000 bytes"),
        (second_is_truncated, "/kubectl ended after"),
        (absent, "does not give them: HTTP Error 404"),
    ],
)
def test_of_wrong_files_nothing_is_kept(
    answer: Answer, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as site:
        monkeypatch.setenv(published.VARIABLE, site)
        with pytest.raises(errors.LabError, match=why):
            published.fetch(SUMS, tmp_path, lambda *_: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("accepts", [True, False])
def test_a_site_that_does_not_answer_is_given_up_within_seconds(
    accepts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not accepts:
            listener.close()
        monkeypatch.setenv(published.VARIABLE, f"http://127.0.0.1:{port}")
        monkeypatch.setattr(published, "_CONNECT_S", 0.5)
        began = time.monotonic()
        with pytest.raises(errors.LabError, match=r"does not give them: .*(no answer within|refused)"):
            published.fetch(SUMS, tmp_path, lambda *_: None)
    assert time.monotonic() - began < 20


def test_a_url_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(published.VARIABLE, "file:///etc")
    with pytest.raises(errors.LabError, match="is no http URL"):
        published.fetch(SUMS, tmp_path, lambda *_: None)


@pytest.mark.parametrize(
    ("done", "elapsed_s", "slow"),
    [(0, 1, False), (1_000_000, 4, False), (1_000_000, 6, True), (30_000_000, 6, False), (0, 6, True)],
)
def test_a_slow_site_is_given_up(done: int, elapsed_s: float, slow: bool) -> None:
    assert published.too_slow(done, 250_000_000, elapsed_s) is slow


def test_checksums_come_from_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "PROGRAMS", PROGRAMS)
    monkeypatch.setattr(published, "ARCHITECTURES", {"x86_64": "amd64"})
    with serving(whole) as site:
        monkeypatch.setenv(published.VARIABLE, site)
        assert published.pinned(published.checksums([VERSION]), PROGRAMS, VERSION, "x86_64") == SUMS
    with serving(absent) as site:
        monkeypatch.setenv(published.VARIABLE, site)
        with pytest.raises(errors.LabError, match="404"):
            published.checksums([VERSION])


@pytest.mark.parametrize(
    ("answer", "known", "steps"),
    [
        (whole, True, ["downloading kube-apiserver, kubectl v1.37.2 from {site}"]),
        (
            another,
            True,
            ["downloading kube-apiserver, kubectl v1.37.2 from {site}", "* they are built instead", "building *"],
        ),
        (whole, False, ["no checksums of kube-apiserver, kubectl v1.37.2 as published are known: *", "building *"]),
    ],
)
def test_a_sentence_tells_which_way_was_taken(
    answer: Answer, known: bool, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_with_go(programs: list[str], *arguments: object) -> None:
        folder, report = arguments[2], arguments[4]
        assert isinstance(folder, Path)
        assert callable(report)
        report("building with Go")
        for each in programs:
            (folder / each).write_text("built")

    monkeypatch.setattr(build, "_build", build_with_go)
    monkeypatch.setattr(build, "has_version", lambda program, _: program.exists())
    monkeypatch.setattr(published, "of_this_machine", lambda *_: SUMS if known else None)
    said: list[str] = []
    with serving(answer) as site:
        monkeypatch.setenv(published.VARIABLE, site)
        build.kubernetes(PROGRAMS, VERSION, tmp_path / "target", tmp_path, said.append)
        assert len(said) == len(steps)
        for line, step in zip(said, steps, strict=True):
            begin, _, end = step.format(site=site).partition("*")
            assert line.startswith(begin)
            assert line.endswith(end)
    expected = "built" if len(steps) > 1 else CONTENT["kubectl"].decode()
    assert (tmp_path / "target/kubectl").read_text() == expected
