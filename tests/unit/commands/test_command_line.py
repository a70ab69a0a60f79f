"""The command line as kubectl's users expect it: which commands it shows, options before and behind them, durations."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kube_nftlb import __version__, cli, errors
from kube_nftlb.cli import app
from kube_nftlb.commands import exits, group
from kube_nftlb.commands.cluster.versions import of_cluster
from kube_nftlb.commands.group import command_first, duration

INTERNAL = {
    "operator",
    "agent",
    "nftlb-daemon",
    "healthy",
    "echo",
    "node-traffic",
}


def run(*words: str, name: str = "kube-nftlb") -> Result:
    return CliRunner().invoke(app, list(words), prog_name=name)


def shown(name: str) -> set[str]:
    told = run("--help", name=name).stdout
    return {line.split()[1] for line in told.splitlines() if line.startswith("│ ") and line[2].isalpha()}


def test_the_plugin_shows_the_commands_of_users_alone() -> None:
    assert shown(group.PLUGIN) == group.OF_USERS
    assert shown("kube-nftlb") == group.OF_USERS | {"clean", "nftlb", "lab", "release-addresses"}


@pytest.mark.parametrize("command", sorted(INTERNAL))
def test_what_containers_and_checkouts_run_works_though_it_is_not_shown(command: str) -> None:
    for name in ("kube-nftlb", group.PLUGIN):
        assert run(command, "--help", name=name).exit_code == 0


def test_the_version_needs_no_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version").stdout == f"kube-nftlb {__version__}\n"
    assert f"kube-nftlb (here)   {__version__}, Python 3." in run("version", "--client").stdout
    monkeypatch.setattr(sys, "argv", ["kubectl-nftlb", "--version"])
    with pytest.raises(SystemExit):
        cli.kubectl_plugin()
    assert capsys.readouterr().out == f"kube-nftlb {__version__}\n"


def test_the_versions_of_a_cluster_are_counted() -> None:
    reports = [
        {"status": {"versions": {"agent": "0.1.0", "nftlb": "1.0.7"}}},
        {"status": {"versions": {"agent": "0.2.0"}}},
        {},
    ]
    pod = {"metadata": {"labels": {"app.kubernetes.io/component": "operator", "app.kubernetes.io/version": "0.2.0"}}}
    assert of_cluster(reports, [pod, pod]) == {
        "operator": {"0.2.0": 2},
        "agents": {"0.1.0": 1, "0.2.0": 1, "unknown": 1},
        "nftlb": {"1.0.7": 1},
    }
    assert of_cluster([], None) == {"operator": {}, "agents": {}, "nftlb": {}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("status -n x", "status -n x"),
        ("--context far status", "status --context far"),
        ("--context=far -n shop get web", "get --context=far -n shop web"),
        ("-A -ojson why", "why -A -ojson"),
        ("--kubeconfig f -o yaml top --once", "top --kubeconfig f -o yaml --once"),
        ("--help", "--help"),
        ("--unknown status", "--unknown status"),
        ("--context", "--context"),
        ("", ""),
    ],
)
def test_options_may_stand_before_the_command(before: str, after: str) -> None:
    assert command_first(before.split()) == after.split()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("2m", 120), ("1m30s", 90), ("500ms", 0.5), ("1h", 3600), ("90", 90), ("1.5", 1.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "2d", "1m 30s", "-1s", "sixty", "1e3", "nan", "60S"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 60s, 2m"):
        duration(text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("explain --context x", "No such option"),
        ("render -f x -A", "No such option"),
        ("get web -A", "No such option"),
        ("undrain web -o json", "No such option"),
        ("why -o wide", "'wide' is not one of"),
        ("status --wait soon", "is not a duration"),
        ("trace 10.0.0.1 10.96.0.1:80 --timeout 1h", "--timeout must be from 1s to 10m, not 3600s"),
        ("why web -A", "--all-namespaces excludes a name"),
        ("status -A -n x", "--all-namespaces excludes --namespace"),
        ("status --pods 2", "--pods needs --service"),
        ("status --service a/b -n c", "leave out --namespace"),
        ("status --service a", "--service must be NAMESPACE/NAME"),
        ("render -f x --all", "--all needs -o nft"),
        ("render -f /nowhere", "cannot read /nowhere"),
        ("explain nosuch", "`kube-nftlb explain` lists all fields"),
        ("nosuch", "No such command"),
    ],
)
def test_an_option_is_refused_where_it_means_nothing(words: str, expected: str) -> None:
    done = run(*words.split())
    assert done.exit_code == exits.USAGE
    assert expected in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UsageError("x"), exits.USAGE),
        (errors.UnavailableError("x"), exits.CANNOT_TELL),
        (errors.KubeError(403, "Forbidden", "x"), exits.CANNOT_TELL),
        (errors.NotFoundError(404, "NotFound", "x"), exits.CANNOT_TELL),
        (errors.KubeUnreachableError("x"), exits.CANNOT_TELL),
        (errors.KernelError("x"), exits.CANNOT_TELL),
        (errors.UnhealthyError("x"), exits.WRONG),
    ],
)
def test_each_status_has_one_meaning(error: errors.KubeNftlbError, status: int) -> None:
    assert exits.status_of(error) == status


def test_the_help_of_each_command_of_users_names_the_statuses() -> None:
    for command in group.OF_USERS:
        told = " ".join(run(command, "--help").stdout.split())
        assert "Exit status 0:" in told, command
        assert exits.NO_ANSWER in told, command


def test_a_defect_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("kube_nftlb.commands.explain.explain", broken)
    done = run("explain", "limits.new")
    assert done.exit_code == exits.CANNOT_TELL
    assert done.stderr == (
        "kube-nftlb: a defect of this program, please report it: ZeroDivisionError: by zero "
        "(KUBE_NFTLB_DEBUG=1 shows where)\n"
    )
    monkeypatch.setenv("KUBE_NFTLB_DEBUG", "1")
    assert "in broken" in run("explain", "limits.new").stderr + capfd.readouterr().err


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("kube_nftlb.commands.explain.explain", interrupted)
    done = run("explain", "limits.new")
    assert (done.exit_code, done.output) == (exits.INTERRUPTED, "")


def test_programs_of_containers_keep_their_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("agent")
    assert done.exit_code == 1
    assert "KUBE_NFTLB_NODE_NAME must be set" in done.stderr


@pytest.mark.parametrize(
    ("redirection", "expected"),
    [
        (">/dev/full", "kube-nftlb: cannot write to standard output: no space left on device\n"),
        (">&-", "kube-nftlb: standard output is closed\n"),
        ("| true", ""),
    ],
)
def test_where_nothing_can_be_written_this_is_said_once(redirection: str, expected: str) -> None:
    command = f"set -o pipefail; {sys.executable} -m kube_nftlb version --client {redirection}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == (expected, exits.CANNOT_TELL if expected else exits.WELL)


def test_users_do_not_read_what_libraries_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(*_: object) -> str:
        logging.getLogger("a library").warning("Config not found")
        return ""

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr("kube_nftlb.commands.explain.explain", noisy)
    done = run("explain", "limits.new")
    assert "Config" not in done.output + capsys.readouterr().err
