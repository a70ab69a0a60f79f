"""Download the programs that Kubernetes publishes, instead of building them.

Only what SUMS pins by checksum is taken. ``python -m lab.published`` writes that file, on a machine that reaches SITE;
its checksums are those that the site has beside the programs at that moment, and are reviewed as any change of the
repository. While a version has none there, the lab builds it.
"""

import hashlib
import os
import platform
import queue
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from kube_nftlb import errors
from lab import versions
from lab.progress import Count
from lab.versions import Version

SITE = "https://dl.k8s.io/release"
VARIABLE = "KUBE_NFTLB_LAB_RELEASES"
"""The environment variable with the URL of another place with the same folders, such as a mirror."""
SUMS = versions.MODULES / "SHA256SUMS"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_SUM = re.compile(r"([0-9a-f]{64})  (\S+)")
_CONNECT_S = 3.0
"""With the look-up of the name, which has no limit of its own."""
_SILENCE_S = 5.0
_JUDGED_AFTER_S = 5.0
_WHOLE_S = 180.0
"""A download that takes longer is no faster than a build."""
_CHUNK = 1 << 18
_MB = 1_000_000


def path_of(program: str, version: Version, machine: str) -> str:
    """Return where a program for a machine (as ``uname -m`` says) is below the site."""
    return f"{version.full}/bin/linux/{ARCHITECTURES.get(machine, machine)}/{program}"


def pinned(sums: str, programs: Iterable[str], version: Version, machine: str) -> Mapping[str, str] | None:
    """Return the path below the site and the SHA-256 of each program, or None if ``sums`` lacks one of them.

    ``sums`` is the text of SUMS, as ``sha256sum`` writes it.
    """
    known = {match[2]: match[1] for line in sums.splitlines() if (match := _SUM.fullmatch(line))}
    wanted = [path_of(program, version, machine) for program in programs]
    return {path: known[path] for path in wanted} if all(path in known for path in wanted) else None


def of_this_machine(programs: Iterable[str], version: Version) -> Mapping[str, str] | None:
    """Return ``pinned`` of the repository's checksums for this machine."""
    return pinned(SUMS.read_text() if SUMS.exists() else "", programs, version, platform.machine())


def site() -> str:
    """Return the URL that all paths are below."""
    return os.environ.get(VARIABLE, SITE).rstrip("/")


def fetch(sums: Mapping[str, str], folder: Path, count: Count) -> None:
    """Download what ``sums`` names, into ``folder``, by the last part of each path: all of it, verified, or nothing.

    Raises LabError if the site cannot be reached within seconds, is slow, or has something else.
    """
    with tempfile.TemporaryDirectory(dir=folder) as unverified:
        _fetch(sums, Path(unverified), count)
        for file in Path(unverified).iterdir():
            file.rename(folder / file.name)


def _fetch(sums: Mapping[str, str], folder: Path, count: Count) -> None:
    base = site()
    downloads = _Downloads(count)
    try:
        # The first connection alone, so that a machine without network learns it once, and soon.
        _soon(lambda: _open(f"{base}/{next(iter(sums))}").close())
        with ThreadPoolExecutor(len(sums)) as pool:
            running = [
                pool.submit(downloads.one, f"{base}/{path}", folder / Path(path).name, checksum)
                for path, checksum in sums.items()
            ]
            try:
                for download in running:
                    download.result()
            except BaseException:
                downloads.stopped.set()
                raise
    except (OSError, HTTPException, ValueError) as error:
        raise errors.LabError(f"{base} does not give them: {error}") from error


class _Downloads:
    """Files on their way at the same time, counted together."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._done = self._total = 0
        self._began = time.monotonic()
        self.stopped = threading.Event()

    def one(self, url: str, target: Path, checksum: str) -> None:
        """Download and verify one file. Raises LabError, OSError, HTTPException."""
        digest, size = hashlib.sha256(), 0
        with _open(url) as response, target.open("wb") as file:
            expected = int(response.headers.get("Content-Length") or 0)
            with self._lock:
                self._total += expected
            while not self.stopped.is_set() and (chunk := response.read(_CHUNK)):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                self._add(len(chunk))
        if size < expected and not self.stopped.is_set():
            raise errors.LabError(f"{url} ended after {size:,} of {expected:,} bytes")
        if digest.hexdigest() != checksum and not self.stopped.is_set():
            raise errors.LabError(f"{url} has the SHA-256 {digest.hexdigest()}, not {checksum}, which {SUMS.name} pins")
        target.chmod(0o755)

    def _add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if too_slow(self._done, self._total, time.monotonic() - self._began):
                raise errors.LabError(f"{site()} is too slow: {self._done / _MB:.0f} of {self._total / _MB:.0f} MB")
            self._count("MB downloaded", self._done // _MB, self._total // _MB)


def too_slow(done: int, total: int, elapsed_s: float) -> bool:
    """Return True if a download at this pace would take longer than a build."""
    return elapsed_s > _JUDGED_AFTER_S and elapsed_s * total > _WHOLE_S * done


def _open(url: str) -> HTTPResponse:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url} is no http URL")
    try:
        response: HTTPResponse = urllib.request.urlopen(url, timeout=_SILENCE_S)  # noqa: S310 (checked above)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    return response


def _soon(connect: Callable[[], None]) -> None:
    """Call a function that connects. Raises what it raises, TimeoutError after seconds, in which it is left behind."""
    answer: queue.Queue[BaseException | None] = queue.Queue()

    def ask() -> None:
        try:
            connect()
        except (OSError, HTTPException, ValueError) as error:
            answer.put(error)
        else:
            answer.put(None)

    threading.Thread(target=ask, daemon=True).start()
    try:
        failure = answer.get(timeout=_CONNECT_S)
    except queue.Empty:
        raise TimeoutError(f"no answer within {_CONNECT_S:.0f} s") from None
    if failure is not None:
        raise failure


def checksums(all_versions: Iterable[Version]) -> str:
    """Return the text of SUMS for these versions, asked of the site. Raises LabError."""
    lines = []
    for version in all_versions:
        for machine in ARCHITECTURES:
            for program in PROGRAMS:
                path = path_of(program, version, machine)
                try:
                    with _open(f"{site()}/{path}.sha256") as response:
                        published = response.read(_CHUNK).decode().split()
                except (OSError, HTTPException, ValueError) as error:
                    raise errors.LabError(f"{site()}/{path}.sha256: {error}") from error
                line = f"{published[0] if published else ''}  {path}"
                if _SUM.fullmatch(line) is None:
                    raise errors.LabError(f"{site()}/{path}.sha256 is no SHA-256")
                lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write SUMS, all or nothing."""
    try:
        text = checksums(versions.supported())
    except errors.LabError as error:
        sys.exit(f"{SUMS.name} stays as it is: {error}")
    SUMS.write_text(text)
    print(f"{len(text.splitlines())} checksums in {SUMS}: compare them with a second source before you commit them")


if __name__ == "__main__":
    main()
