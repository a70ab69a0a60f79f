"""The cluster of the tests of the Gateway API: real nodes, kube-nftlb by its chart, and addresses that it announces."""

import contextlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab import components, programs
from lab.lab import Lab
from tests.builders.gateways import CLASS, GATEWAY_CLASS
from tests.e2e.real import RealCluster
from tests.image import build
from tests.upstream import images
from tests.upstream import programs as upstream_programs
from tests.upstream.gateway import suite

_ECHO = [f"registry.k8s.io/gateway-api/echo-basic:{tag}" for tag in ("v1.5.1", "v1.6.0-dev.2", "v1.6.0-dev.3")]
_COREDNS = "registry.k8s.io/coredns/coredns:v1.12.2"
_NODES = 2
_POOL = {
    "apiVersion": "kube-nftlb.io/v1alpha1",
    "kind": "NftlbAddressPool",
    "metadata": {"name": "segment"},
    "spec": {"ranges": [suite.POOL]},
}


@contextmanager
def running(name: str, engine: str, report: Callable[[str], None]) -> Iterator[Lab]:
    """Start a cluster with kube-nftlb and this engine for routes. Raises LabError, AssertionError."""
    built = upstream_programs.ensure(report, upstream_programs.OF_GATEWAY_API)
    helm = programs.helm(report)
    report("building the image of kube-nftlb")
    image = build.build()
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
        archives = [_servers(built, Path(folder)), Path(folder, "kube-nftlb.tar")]
        image.save(archives[1])
        lab = Lab.up(name, nodes=_NODES, proxy="none", runtime=components.CONTAINERS, gateway_api=True, report=report)
        try:
            for archive in archives:
                report(f"loading {archive.name} on all nodes")
                lab.load_image(archive)
            with contextlib.closing(RealCluster(lab, helm, image.name)) as cluster:
                report("installing the chart")
                cluster.install(*_options(engine))
                cluster.apply(_POOL, GATEWAY_CLASS)
                cluster.wait("gatewayclass", CLASS, "Accepted")
            yield lab
        finally:
            lab.down()


def _options(engine: str) -> list[str]:
    values = {"profile": "kube-proxy", "addresses.enabled": "true", "gateway.enabled": "true", "gateway.engine": engine}
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def _servers(built: Mapping[str, Path], folder: Path) -> Path:
    """Return an archive with the images that the tests name."""
    layer = folder / "programs.tar"
    names = (upstream_programs.ECHO, upstream_programs.WHOAMI)
    with tarfile.open(layer, "w") as tar:
        for name in names:
            tar.add(built[name], arcname=name)
    made = folder / "servers.tar"
    tags = ([*_ECHO], [_COREDNS])
    images.write(made, [layer], [images.Image(of, [f"/{name}"]) for of, name in zip(tags, names, strict=True)])
    return made
