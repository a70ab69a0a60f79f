"""Routes that no agent of this node keeps any more: BGP was switched off, or has another table since."""

import asyncio

import structlog

from kube_nftlb.announce.bgp.table import remove_all
from kube_nftlb.settings import AgentSettings

_log = structlog.get_logger()


async def remove_earlier_routes(settings: AgentSettings) -> None:
    """Remove an earlier agent's routes from all tables but the one that this one keeps, if any. Logs what fails."""
    try:
        await asyncio.to_thread(remove_all, settings.bgp_table if settings.addresses and settings.bgp else None)
    except OSError as error:
        _log.warning("cannot remove the routes of announced addresses", error=str(error))
