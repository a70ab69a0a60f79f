"""The start-up file while nftlb loads it: if nftlb ends over it, nftlb starts without it the next time.

The file has another name from the start of the daemon until this has answered.
"""

import contextlib
import sys
from pathlib import Path

_LOADING, _FAILED = ".loading", ".failed"


def begin(startup_file: Path) -> Path | None:
    """Return the file that nftlb is to load, or None. One that it did not load the last time is put aside."""
    loading, failed = startup_file.with_suffix(_LOADING), startup_file.with_suffix(_FAILED)
    try:
        if loading.exists():
            loading.replace(failed)
            print(f"nftlb ended as it loaded its farms, now {failed}: the agent sends them again", file=sys.stderr)
        if not startup_file.exists():
            return None
        return startup_file.replace(loading)
    except OSError as error:
        print(f"nftlb loads {startup_file}, which cannot be renamed: {error}", file=sys.stderr)
        return startup_file if startup_file.exists() else None


def begun(startup_file: Path) -> bool:
    """Return True if nftlb has begun to load the file, and has not answered since."""
    return startup_file.with_suffix(_LOADING).exists()


def done(startup_file: Path) -> None:
    """Note that nftlb answers, so that it has loaded the file. A newer file stays."""
    loading = startup_file.with_suffix(_LOADING)
    with contextlib.suppress(FileNotFoundError):
        if startup_file.exists():
            loading.unlink()
        else:
            loading.rename(startup_file)


def remove(startup_file: Path) -> None:
    """Remove the file under all its names."""
    for path in (startup_file, startup_file.with_suffix(_LOADING), startup_file.with_suffix(_FAILED)):
        path.unlink(missing_ok=True)
