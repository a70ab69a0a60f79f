"""List and watch one kind of object for as long as the program runs, as client-go's reflector does."""

import asyncio
from collections.abc import Callable

from kube_nftlb import errors, metrics
from kube_nftlb.kube.client import Kube, Listing, Transform, WatchEvent
from kube_nftlb.kube.resources import Resource


async def follow(
    kube: Kube,
    resource: Resource,
    *,
    on_list: Callable[[Listing], None],
    on_event: Callable[[WatchEvent], None],
    on_trouble: Callable[[errors.KubeNftlbError], None],
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    metadata_only: bool = False,
    transform: Transform = lambda item: item,
) -> None:
    """List, then watch, for ever (a reflector, as Kubernetes' client libraries call it).

    ``on_list`` gets the whole state, at the start and whenever continuity was lost, each object as ``transform`` left
    it; ``on_event`` what happens after it, bookmarks included, as it is; ``on_trouble`` each failure, after which it
    tries again, more slowly each time, up to 5 s. With ``metadata_only`` objects have nothing but their metadata.

    Custom resources are listed from the API server's memory: what is older there than elsewhere, as it may be after a
    start, comes later as events; but never is what was told already taken back.
    """
    delay_s = 0.1
    resource_version: str | None = None
    not_older_than: str | None = "0"
    selectors = {"label_selector": label_selector, "field_selector": field_selector}
    while True:
        try:
            if resource_version is None:
                listing = await kube.list(
                    resource,
                    namespace,
                    **selectors,
                    metadata_only=metadata_only,
                    transform=transform,
                    not_older_than=not_older_than if resource.custom else None,
                )
                resource_version = listing.resource_version
                on_list(listing)
            async for event in kube.watch(
                resource, resource_version, namespace=namespace, **selectors, metadata_only=metadata_only
            ):
                resource_version = event.object["metadata"]["resourceVersion"]
                on_event(event)
                delay_s = 0.1
        except errors.ExpiredError:
            metrics.WATCH_FAILURES.labels(resource.plural, "Expired").inc()
            not_older_than, resource_version = resource_version, None
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            metrics.WATCH_FAILURES.labels(resource.plural, "Failed").inc()
            if isinstance(error, errors.KubeError) and error.status == 504 and resource_version is None:
                # There is no such version: etcd was set back to a backup.
                not_older_than = None
            on_trouble(error)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, 5)
