"""Start nftlb as the agent expects it: on the loopback address only, with a secret key."""

import os
import secrets
import shutil
from pathlib import Path
from typing import NoReturn

from kube_nftlb import errors, files
from kube_nftlb.nftlb import loading

PROGRAM = "nftlb"
_LOG_NOTICE = "5"
_LOG_TO_STDERR = "2"


def run(port: int, key_file: Path, startup_file: Path) -> NoReturn:
    """Replace this process with nftlb. Raises UsageError if it is not installed.

    The key is random, and passed in the environment, because everyone can see the command line. nftlb prints it to its
    standard output, which is therefore discarded. The start-up file is loaded if it exists, unless nftlb ended over it.
    """
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise errors.UsageError("nftlb is not installed: the image has it, with the patches that the agent needs")
    key = secrets.token_urlsafe(32)
    key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(key_file, key, mode=0o600)
    arguments = [program, "-H", "127.0.0.1", "-P", str(port), "-l", _LOG_NOTICE, "-L", _LOG_TO_STDERR]
    if (farms := loading.begin(startup_file)) is not None:
        arguments += ["-c", str(farms)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.execve(program, arguments, {**os.environ, "NFTLB_SERVER_KEY": key})  # noqa: S606 - no shell is wanted
