"""Notice by resourceVersions that etcd was restored to an older state. Pure: no I/O.

After a plain restore lists are older than what was seen. If the revision was raised (``etcdutl snapshot restore
--bump-revision``), lists are newer, and objects have the resourceVersions of the backup, which are no news to anybody.
"""

from kube_nftlb import errors

_RESTORED = "etcd was restored to an older state; starting anew"


def check_list(what: str, version: int, newest: int) -> None:
    """Raise RestoredError if a list of this kind is older than what was seen of it."""
    if version < newest:
        raise errors.RestoredError(f"{what} are of resourceVersion {version}, after {newest}: {_RESTORED}")


def check_listed(what: str, version: int, known: int, listed_at: int) -> None:
    """Raise RestoredError if a list made at ``listed_at`` has an object in an older state than was known by then.

    A list from the memory of an API server that lags is older than what is known, and no sign.
    """
    if version < known <= listed_at:
        raise errors.RestoredError(f"{what} is older than it was before: {_RESTORED}")
