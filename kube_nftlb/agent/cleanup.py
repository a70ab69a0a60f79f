"""Taking everything of kube-nftlb away from a node.

Conntrack entries stay: if another service proxy takes over, open connections go on.
"""

import asyncio
import os
from errno import EAFNOSUPPORT, ENOENT, EOPNOTSUPP

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.dsr.pod_addresses import PodAddresses
from kube_nftlb.agent.engine.nftables.layout import TABLE as SERVICES_TABLE
from kube_nftlb.agent.table.layout import TABLE
from kube_nftlb.announce.bgp.table import remove_all
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from kube_nftlb.nftlb import layout, loading
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.requests import Request
from kube_nftlb.settings import NftlbSettings

NFTLB_S = 60.0
"""Maximum time in seconds for nftlb to remove its farms."""
_ABSENT = tuple(os.strerror(number) for number in (ENOENT, EAFNOSUPPORT, EOPNOTSUPP))
"""The kernel's messages if there is no such table, or no support for such tables."""

_log = structlog.get_logger()


async def clean(settings: NftlbSettings, nft: Nft, nftlb_s: float = NFTLB_S) -> None:
    """Remove the tables, the routes of announced addresses, those given to pods, and the files, if they exist.

    An nftlb that still runs has ``nftlb_s`` seconds to remove its farms. The agent must not be running: it would
    restore them. Raises KernelError if a table cannot be removed.
    """
    # First, as nftlb loads it again if it is started anew.
    loading.remove(settings.startup_file)
    await _forget_farms(settings, nftlb_s)
    failures = []
    nftlb_tables = (f"{family} {layout.TABLE}" for family in (*layout.FAMILIES, "netdev"))
    # One of a blueprint is there if the agent ended while it read it.
    ours = (f"inet {name}" for table in (SERVICES_TABLE, TABLE) for name in (table, blueprint_of(table)))
    for table in (*nftlb_tables, *ours):
        try:
            await nft.run(f"delete table {table}")
        except errors.KernelError as error:
            if not any(absent in str(error) for absent in _ABSENT):
                failures.append(str(error))
        else:
            _log.info("table removed", table=table)
    try:
        await asyncio.to_thread(remove_all)
    except OSError as error:
        failures.append(f"the routes of announced addresses: {error}")
    await PodAddresses(settings.pods_file).tidy(lambda _: False)
    settings.nftables_file.unlink(missing_ok=True)
    settings.intervals_file.unlink(missing_ok=True)
    if failures:
        raise errors.KernelError("; ".join(failures))


async def _forget_farms(settings: NftlbSettings, patience_s: float) -> None:
    """Have an nftlb that still runs remove its farms: it would write their tables anew when one of them changes."""
    client = NftlbClient(settings.url, settings.key_file)
    client.patience_s = patience_s
    try:
        await client.change(Request("DELETE", "/farms"))
    except errors.NftlbHangsError as error:
        _log.warning(
            "nftlb may write its tables again: run `kube-nftlb clean` here once it has ended", error=str(error)
        )
    except (errors.NftlbError, errors.NftlbUnreachableError) as error:
        _log.info("no nftlb that has farms", error=str(error))
    finally:
        await client.close()
