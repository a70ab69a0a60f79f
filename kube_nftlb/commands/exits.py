"""The exit statuses of users' commands, and the sentence with which an error ends one. No I/O."""

from typing import Final

from kube_nftlb import errors
from kube_nftlb.commands.printable import printable

WELL: Final = 0
WRONG: Final = 1
USAGE: Final = 2
CANNOT_TELL: Final = 3
INTERRUPTED: Final = 130
"""By Ctrl-C, as of all programs: 128 and the number of the signal."""

WRONG_LINE: Final = "2: the command line is wrong, or names something that does not exist."
NO_ANSWER: Final = "3: the cluster, or a program that this needs, cannot be asked."
_REFUSED: Final = {401: "", 403: "; docs/operations.md lists the rights that each command needs"}
"""The statuses of who may not, with what is to be said of them."""
_NOT_FOUND: Final = 404


def statuses(wrong: str = "", well: str = "done.") -> str:
    """Return what a command's help says of its exit statuses: when it is 0 and 1, and 2 and 3 as everywhere."""
    parts = [f"0: {well}", f"1: {wrong}" if wrong else "", WRONG_LINE, NO_ANSWER]
    return "Exit status " + " ".join(part for part in parts if part)


def status_of(error: errors.KubeNftlbError) -> int:
    """Return the exit status of a command that an error ends."""
    if isinstance(error, errors.UnhealthyError | errors.LabError):
        return WRONG
    return USAGE if isinstance(error, errors.UsageError) else CANNOT_TELL


def message_of(error: errors.KubeNftlbError) -> str:
    """Return an error as a sentence, on one line."""
    text = str(error)
    if isinstance(error, errors.KubeUnreachableError):
        text = f"the API server cannot be reached: {error}"
    elif isinstance(error, errors.KubeError):
        message = error.message.strip() or error.reason
        if error.status in _REFUSED:
            text = f"the API server refuses ({error.status}): {message}{_REFUSED[error.status]}"
        elif error.status == _NOT_FOUND:
            text = f"{message}; is kube-nftlb installed there?"
    return printable(" ".join(text.split()))
