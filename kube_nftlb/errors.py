"""The errors that kube-nftlb raises on purpose.

::

    KubeNftlbError
    ├── UsageError            invalid arguments or settings of a command
    ├── UnavailableError      what a command needs to ask is missing: a cluster, a program, a permission
    ├── KubeError             the API server refused a request
    │   ├── NotFoundError       404
    │   ├── ConflictError       409
    │   └── ExpiredError        410: the resourceVersion is too old, list again
    ├── KubeUnreachableError  the API server did not respond
    ├── RestoredError         the API server's state is older than one that was seen
    ├── LeaseLostError        this replica is no longer the leader
    ├── NftlbError            nftlb refused a request
    ├── EngineUnreachableError   the data plane of an engine did not respond
    │   └── NftlbUnreachableError
    │       ├── NftlbEndedError     nftlb ended before it answered
    │       └── NftlbHangsError     nftlb has not answered yet
    ├── KernelError           libnftables or netlink refused a request
    │   ├── UnansweredError      the kernel did not answer: it may have carried the request out
    │   └── InterruptedDumpError    what it listed has changed meanwhile: some of it may be missing
    ├── UnhealthyError        an operator, agent or nftlb is not healthy
    └── LabError              the lab cannot do what was requested

Retry errors that end in ``UnreachableError``, and temporary KubeErrors; others persist until something is changed.
"""

import os
import re
from typing import Final

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class KubeNftlbError(Exception):
    """The base class of all errors."""


class UsageError(KubeNftlbError):
    """Arguments or settings of a command are invalid; the message says what is allowed."""


class UnavailableError(KubeNftlbError):
    """What a command needs cannot be asked: no cluster is known, or a program or permission is missing."""


class KubeError(KubeNftlbError):
    """The API server refused a request; ``status`` is the HTTP status, ``reason`` the Status object's reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{f'{status} {reason}'.strip()}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_refusal(self) -> bool:
        """True if the same request would most likely be refused again: it is not allowed (403), or invalid (422)."""
        return self.status in (403, 422)

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later: the API server has too much to do (429), or an error (5xx)."""
        return self.status == 429 or self.status >= 500


class NotFoundError(KubeError):
    """404: no such object, or no such resource."""


class ConflictError(KubeError):
    """409: the object already exists, or changed since it was read."""


class ExpiredError(KubeError):
    """410: the resourceVersion is too old to watch from."""


class KubeUnreachableError(KubeNftlbError):
    """The API server could not be reached, or closed the connection."""


class RestoredError(KubeNftlbError):
    """etcd was restored to an older state than this program has seen: nothing that it knows is certain any more."""


class LeaseLostError(KubeNftlbError):
    """This replica is no longer the leader and must not write; the message says why."""


class NftlbError(KubeNftlbError):
    """nftlb refused a request; ``status`` is the HTTP status, or 200 if only the body reports an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"nftlb answered {status}: {message}")
        self.status = status


class EngineUnreachableError(KubeNftlbError):
    """The data plane that an engine programs could not be reached."""


class NftlbUnreachableError(EngineUnreachableError):
    """nftlb could not be reached, closed the connection, or did not respond in time."""


class NftlbEndedError(NftlbUnreachableError):
    """nftlb closed the connection without an answer, as it does when it ends: the request may be why."""


class NftlbHangsError(NftlbUnreachableError):
    """nftlb has had a request for too long. It may still carry it out, and is sent no other until it has answered."""


class KernelError(KubeNftlbError):
    """The kernel, or libnftables on its behalf, refused a request; ``code`` is the errno, None if it is not known."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class UnansweredError(KernelError):
    """The kernel did not acknowledge a request: it may have carried out all of it, a part, or nothing."""


class InterruptedDumpError(KernelError):
    """What the kernel listed has changed meanwhile: some of it may be missing, though it is there before and after."""


class UnhealthyError(KubeNftlbError):
    """The operator, agent or nftlb is not healthy."""


class LabError(KubeNftlbError):
    """The lab cannot do what was requested; the message says what is missing."""


def why(error: BaseException) -> str:
    """Return why something failed, in the words of the system, else of the library: without Python's names."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            # asyncio replaces the system's words; failures to find a name have numbers that os does not know.
            return (os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)).lower()
        cause = cause.__cause__ or next((each for each in cause.args if isinstance(each, BaseException)), None)
    return str(error) or _WORDS.sub(" ", type(error).__name__).lower()
