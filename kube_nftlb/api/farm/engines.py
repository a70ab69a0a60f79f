"""The engines that can serve a farm, and what the engine of nftables maps cannot. No I/O."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

Engine = Literal["nftlb", "nftables"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)

_MODES: Final = ("snat", "dnat")
_PERSISTENCE: Final = ("none", "srcip")


def lacking(fields: Mapping[str, Any]) -> str | None:
    """Return why the engine nftables cannot serve a farm with these fields of its spec, or None if it can."""
    mode, persistence = fields.get("mode", "snat"), fields.get("persistence", "none")
    if mode not in _MODES:
        return f"the engine nftables serves the modes snat and dnat, not {mode}"
    if persistence not in _PERSISTENCE:
        return f"the engine nftables remembers clients by srcip, not by {persistence}"
    if fields.get("mark") is not None and fields.get("protocol") == "All":
        return "the engine nftables does not set marks with protocol All"
    return None
