"""The cluster of the tests: real nodes, cluster DNS, a load balancer provider, and one service proxy."""

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import components
from lab import programs as lab_programs
from lab.lab import Lab
from lab.places import CLIENT
from tests.e2e.real import RealCluster
from tests.functional.cluster import eventually
from tests.image import build
from tests.upstream import images, outside, programs
from tests.upstream.subjects import Subject

ZONES = ("a", "b", "c")
NODES = 2 * len(ZONES)
"""The tests of traffic distribution want three zones with two nodes each."""

_DNS = "10.96.0.10"
_KUBELET = {
    "cluster-dns": _DNS,
    "cluster-domain": "cluster.local",
    # Many pods start at the same time.
    "registry-qps": "0",
    # For the test of a pod that is evicted because of what it has written.
    "local-storage-capacity-isolation": "true",
}
_PATIENCE_S = 300
_PROVIDER_ENDS_S = 10


@contextmanager
def running(name: str, subject: Subject, report: Callable[[str], None]) -> Iterator[Lab]:
    """Start a cluster with a service proxy and all that the tests need. Raises LabError, AssertionError."""
    built = programs.ensure(report)
    helm = lab_programs.helm(report)
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        pause = lab_programs.ensure(subject.proxy, report, components.CONTAINERS, programs.KUBERNETES)["pause"]
        report("making the images of the tests")
        archives = images.build_all(built, pause, Path(folder), report)
        image = None
        if subject.options:
            report("building the image of kube-nftlb")
            image = build.build()
            archives.append(Path(folder, "kube-nftlb.tar"))
            image.save(archives[-1])
        lab = Lab.up(
            name,
            nodes=NODES,
            zones=list(ZONES),
            proxy=subject.proxy,
            runtime=components.CONTAINERS,
            kubernetes=programs.KUBERNETES.name,
            settings={components.KUBELET: _KUBELET},
            report=report,
        )
        try:
            for archive in archives:
                report(f"loading {archive.name} on all nodes")
                lab.load_image(archive)
                archive.unlink()
            outside.move_client(lab)
            with contextlib.closing(RealCluster(lab, helm, image.name if image else "")) as cluster:
                if image:
                    report("installing the chart")
                    cluster.install(*subject.options)
                report("installing cluster DNS")
                _install_dns(cluster)
            with _provider(lab):
                yield lab
        finally:
            lab.down()


def _install_dns(cluster: RealCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=Path(__file__).with_name("dns.yaml").read_text())

    def is_ready() -> bool:
        status = cluster.get("deployment", "coredns", "kube-system").get("status", {})
        return bool(status.get("readyReplicas") == status.get("replicas", 0) == 2)

    eventually(is_ready, "cluster DNS is ready", _PATIENCE_S)


@contextmanager
def _provider(lab: Lab) -> Iterator[None]:
    command = lab.command(CLIENT, sys.executable, "-m", "tests.upstream.provider")
    process = subprocess.Popen(command, env=lab.environment(CLIENT), stdin=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise AssertionError(f"the load balancer provider has ended with {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        process.wait(_PROVIDER_ENDS_S)
