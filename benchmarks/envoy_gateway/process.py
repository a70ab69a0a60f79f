"""Run Envoy Gateway and Envoy in a pod of a lab, from a root folder of their own."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.envoy_gateway import build
from benchmarks.envoy_gateway.build import Programs
from kube_nftlb import errors
from lab.lab import Lab

NAMESPACE = "envoy-gateway-system"

# It looks for its certificates in /certs, and writes to /var, which the machine's own are not for.
_ENTER = """
set -e
mkdir -p root/var root/certs
cp config/certs/envoy-gateway/* root/certs
for folder in /*/; do
  [ $folder = /var/ ] || { mkdir -p root$folder; mount --rbind $folder root$folder; }
done
exec chroot root "$@" > log 2>&1
"""


@contextlib.contextmanager
def running(lab: Lab, pod: str, programs: Programs) -> Iterator[None]:
    """Run them for the block: Envoy Gateway starts Envoy as soon as a Gateway needs it."""
    with tempfile.TemporaryDirectory(prefix="kube-nftlb-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        version = folder / "data/envoy-versions" / build.envoy_version() / "bin"
        version.mkdir(parents=True)
        (version / "envoy").symlink_to(programs.envoy)
        for options in (["--local", "--config-home", str(folder / "config")], ["--disable-topology-injector"]):
            # The latter are Secrets, which it also asks for.
            done = lab.exec(pod, str(programs.gateway), "certgen", *options)
            if done.returncode != 0:
                raise errors.LabError(f"Envoy Gateway makes no certificates: {done.stderr[-1000:]}")
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps(_config(folder)))
        argv = [str(programs.gateway), "server", "--config-path", str(folder / "config.yaml")]
        command = ["env", "-C", name, "unshare", "--mount", "sh", "-c", _ENTER, "sh", *argv]
        with lab.popen(pod, *command) as process:
            try:
                yield
            finally:
                process.kill()


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration: what Kubernetes says is served by processes beside it, and not by pods."""
    places = {"configHome": "config", "dataHome": "data", "stateHome": "state", "runtimeDir": "run"}
    host = {key: str(folder / place) for key, place in places.items()}
    resource = {"type": "Kubernetes", "kubernetes": {"leaderElection": {"disable": True}}}
    custom = {"resource": resource, "infrastructure": {"type": "Host", "host": host}}
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
        "provider": {"type": "Custom", "custom": custom},
        "logging": {"level": {"default": "error"}},
    }
