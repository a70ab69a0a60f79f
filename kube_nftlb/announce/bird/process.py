"""Run BIRD for an agent: with the passwords of a Secret, again if it ends, and until the agent has ended.

It ends BIRD by SIGKILL, so that routers go on with the routes (RFC 4724): the agent has had them prefer other nodes, or
has deleted all routes if no other agent follows it. The next BIRD starts once routers with BFD have noticed that the
one before is gone: otherwise they end its new session for that, and forget the routes.
"""

import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kube_nftlb.announce.bird.files import AGENT, CONFIG, SOCKET, detection_s, password_config, password_file

_LOOK_EVERY_S: Final = 0.2
AGENT_ENDS_S: Final = 110.0
"""How long an agent may take to end, once both were told to: it may wait for a kube-proxy before it deletes routes.

The pod's terminationGracePeriodSeconds are 120.
"""
_AGAIN_S: Final = 1.0
_MARGIN_S: Final = 0.5
_PAUSE_MAX_S: Final = 60.0
"""Routers go on with the routes for two minutes."""


class BirdProcess:
    """BIRD, with its configuration in ``run_dir`` and pieces with the passwords of ``secret`` in ``passwords``."""

    def __init__(self, program: str, run_dir: Path, secret: Path, passwords: Path) -> None:
        self._command: Sequence[str] = (
            *(program, "-f", "-R", "-c", str(run_dir / CONFIG)),
            *("-s", str(run_dir / SOCKET)),
        )
        self._run_dir = run_dir
        self._secret = secret
        self._passwords = passwords
        self._written: Mapping[str, str] = {}
        self._bird: subprocess.Popen[bytes] | None = None
        # One that was killed with its container may have run until now.
        self._ended_at = time.monotonic()
        self._end_at: float | None = None

    def end(self) -> None:
        """Have ``run`` return once the agent has ended."""
        self._end_at = self._end_at or time.monotonic() + AGENT_ENDS_S

    def run(self) -> None:
        """Run BIRD until ``end``. Raises OSError."""
        for folder in (self._run_dir, self._passwords):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for piece in self._passwords.iterdir():
            # The container has started again, and keys may have gone meanwhile.
            piece.unlink()
        try:
            while not self._over():
                changed = self._write_passwords()
                if self._bird is None or self._has_ended(self._bird):
                    self._start()
                elif changed:
                    self._bird.send_signal(signal.SIGHUP)
                time.sleep(_LOOK_EVERY_S)
        finally:
            if self._bird is not None:
                self._bird.kill()
                self._bird.wait()

    def _over(self) -> bool:
        if self._end_at is None:
            return False
        return time.monotonic() > self._end_at or not self._agent_runs()

    def _agent_runs(self) -> bool:
        try:
            with (self._run_dir / AGENT).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _has_ended(self, bird: subprocess.Popen[bytes]) -> bool:
        if bird.poll() is None:
            return False
        print(f"BIRD has ended with status {bird.returncode}", file=sys.stderr, flush=True)
        self._bird, self._ended_at = None, time.monotonic()
        return True

    def _start(self) -> None:
        # The agent writes it once it knows its peers.
        config = self._run_dir / CONFIG
        if not config.exists():
            return
        pause = min(max(detection_s(config.read_text()) + _MARGIN_S, _AGAIN_S), _PAUSE_MAX_S)
        if time.monotonic() - self._ended_at >= pause:
            self._bird = subprocess.Popen(self._command)

    def _write_passwords(self) -> bool:
        """Write the pieces of configuration anew, and return whether any has changed."""
        found = {password_file(key): piece for key, piece in self._pieces().items() if piece}
        if found == self._written:
            return False
        for gone in self._written.keys() - found.keys():
            (self._passwords / gone).unlink(missing_ok=True)
        for name, piece in found.items():
            path = self._passwords / name
            path.touch(mode=0o600)
            path.write_text(piece)
        self._written = found
        return True

    def _pieces(self) -> dict[str, str]:
        if not self._secret.is_dir():
            return {}
        # Kubernetes keeps what the names of keys point to in a folder that begins with two dots.
        keys = [path for path in self._secret.iterdir() if path.is_file() and not path.name.startswith("..")]
        return {key.name: password_config(key.read_text(errors="replace").rstrip("\n")) for key in keys}
