"""Somebody who reads a page and does what it says, in a shell that goes on from block to block."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import yaml

from lab import programs
from tests.docs import pages
from tests.docs.pages import Block, Step

ROOT = Path(__file__).parents[2]

_BLOCK_S = 180
_END = "end-of-the-block"


class Reader:
    """Works in a folder that looks like the repository's, with labs of its own; all of it is gone after ``close``."""

    def __init__(self, nftlb: Path, *within: str) -> None:
        """``nftlb`` is the last program of its PATH, ``within`` a command such as ``unshare --net`` for another."""
        # The path of a lab's socket must be short.
        self.home = Path(tempfile.mkdtemp(prefix="docs-", dir="/tmp"))
        self.folder = self.home / "kube-nftlb"
        self.folder.mkdir()
        for entry in ROOT.iterdir():
            if entry.name != "Makefile":
                (self.folder / entry.name).symlink_to(entry)
        # Called by its other name, make would install the other folder.
        (self.folder / "Makefile").write_text(f".DEFAULT:\n\t@$(MAKE) --no-print-directory -C {ROOT} $@\n")
        helm = programs.cache_folder() / "bin"
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin:{helm}:{nftlb.parent}",
        }
        for leftover in ("KUBECONFIG", "KUBE_NFTLB_LAB"):
            self._environment.pop(leftover, None)
        self._shell = subprocess.Popen(
            [*within, "bash", "--norc", "-e"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def follow(self, block: Block) -> str:
        """Do what a block says; its text as it should be, with the output that there really was."""
        if block.file_name:
            (self.folder / block.file_name).write_text(block.text)
        elif block.language == "yaml":
            (self.folder / "block.yaml").write_text(block.text)
            self.run("kubectl apply -f block.yaml")
            self._programmed(block.text)
        elif block.language == "sh":
            self.run(block.text)
        elif block.language == "console":
            done = [Step(step.command, self.run(step.command)) for step in pages.steps(block.text)]
            return pages.console(done)
        return block.text

    def run(self, script: str) -> str:
        """Run a script and return its output. Raises AssertionError if a command fails."""
        path = self.home / "script"
        path.write_text(script)
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"source {path} </dev/null\necho {_END}\n")
        self._shell.stdin.flush()
        watchdog = threading.Timer(_BLOCK_S, self._kill)
        watchdog.start()
        lines: list[str] = []
        try:
            for line in self._shell.stdout:
                if line.endswith(f"{_END}\n"):
                    return "".join([*lines, line.removesuffix(f"{_END}\n")])
                lines.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError(f"exit status {self._shell.wait()} of:\n{script}\nwhich printed:\n{''.join(lines)}")

    def close(self) -> None:
        self._kill()
        self._shell.communicate()
        for lab in self.home.glob("kube-nftlb/labs/*"):
            command = [sys.executable, "-m", "kube_nftlb", "lab", "--name", lab.name, "down"]
            subprocess.run(command, env=self._environment, cwd=ROOT, check=True, timeout=60)
        shutil.rmtree(self.home)

    def _programmed(self, text: str) -> None:
        """Wait until every hand-written farm that was applied reaches every node."""
        for each in yaml.safe_load_all(text):
            if each and each["kind"] in ("NftlbFarm", "NftlbPolicy"):
                kind, metadata = each["kind"].lower(), each["metadata"]
                where = f"{kind}/{metadata['name']} -n {metadata.get('namespace', 'default')}"
                self.run(f"kubectl wait --for=condition=Programmed {where} --timeout=30s")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
