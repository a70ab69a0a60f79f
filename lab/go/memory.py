"""How much memory the compiler may use instead of collecting garbage. Computation only."""

from collections.abc import Mapping

_SHARE = 0.7
"""Of what is available; the rest is for what runs beside the build."""
_SMALLEST_MIB = 768
"""With less than this per process, collecting garbage near the limit would cost more than Go's own pace does."""
_MIB = 1 << 20


def settings(available: int | None, processes: int) -> Mapping[str, str]:
    """Return the environment in which ``processes`` compilers at once use most of ``available`` bytes of memory.

    They collect garbage only near the limit of each. Empty, for Go's defaults, if memory is short or unknown (None).
    """
    if available is None or (limit := int(available * _SHARE) // _MIB // processes) < _SMALLEST_MIB:
        return {}
    return {"GOGC": "off", "GOMEMLIMIT": f"{limit}MiB"}


def available(meminfo: str) -> int | None:
    """Return MemAvailable of the text of /proc/meminfo in bytes, or None if it has none."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
