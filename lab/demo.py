"""The walk-through of the original kube-nftlb: a Service, a Deployment behind it, then more replicas."""

import os
import subprocess
import time
from collections.abc import Callable

from kube_nftlb import errors
from lab.lab import Lab
from lab.places import CLIENT

_TIMEOUT_S = 30

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: my-service
  labels:
    app: front
spec:
  selector:
    app: front
  ports:
    - name: http
      protocol: TCP
      port: 8080
      targetPort: 80
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: lower-prio
spec:
  replicas: 2
  selector:
    matchLabels:
      app: front
  template:
    metadata:
      labels:
        app: front
    spec:
      containers:
        - name: nginx
          image: nginx:alpine
          ports:
            - containerPort: 80
"""


class Demo:
    """The walk-through; ``say`` receives each line for the user."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._say = say
        self._environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}

    def run(self) -> None:
        """Run the walk-through. Raises LabError if a step fails."""
        self._say("\n# A Service without endpoints becomes a farm without backends: connections are refused.")
        self._kubectl("apply", "-f", "-", stdin=SERVICE)
        self._wait_for("condition=Programmed")
        self._kubectl("get", "nftlbfarms")
        self._say("\n# A Deployment with two replicas adds backends.")
        self._kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        self._kubectl("rollout", "status", "deployment/lower-prio", f"--timeout={_TIMEOUT_S}s")
        self._until_all_answer(2)
        self._say("\n# Scaling adds backends; established connections continue.")
        self._kubectl("scale", "deployment/lower-prio", "--replicas=5")
        self._kubectl("rollout", "status", "deployment/lower-prio", f"--timeout={_TIMEOUT_S}s")
        self._until_all_answer(5)
        # The status comes a moment after the traffic, and is what is shown next.
        self._wait_for("jsonpath={.status.backendsReady}=5/5")
        self._wait_for("condition=EndpointsProgrammed")
        self._kubectl("get", "nftlbfarms", "-A")
        self._kubectl("get", "nftlbnodes")
        self._say("\n# Responses of the backends, to the client outside the cluster and to a node.")
        for where in (CLIENT, self._lab.nodes[0].name):
            for _ in range(5):
                self._curl(where)

    def _until_all_answer(self, replicas: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        seen: set[str] = set()
        while len(seen) < replicas:
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f"only {len(seen)} of {replicas} replicas responded: see `kube-nftlb lab logs agent`"
                )
            done = self._lab.exec(CLIENT, "curl", "-s", "-m", "2", f"http://{self._vip()}:8080")
            seen.update(done.stdout.split()[:1])

    def _curl(self, where: str) -> None:
        url = f"http://{self._vip()}:8080"
        done = self._lab.exec(where, "curl", "-s", "-m", "2", url)
        if done.returncode != 0:
            raise errors.LabError(f"no response from {url} to {where}")
        self._say(f"$ kube-nftlb lab exec {where} -- curl -s {url}\n{done.stdout.rstrip()}")

    def _vip(self) -> str:
        return self._run("get", "service", "my-service", "-o", "jsonpath={.spec.clusterIP}")

    def _wait_for(self, what: str) -> None:
        self._kubectl("wait", f"--for={what}", "farm/my-service--http", f"--timeout={_TIMEOUT_S}s")

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> None:
        shown = " ".join(arguments)
        if stdin is not None:
            self._say(f"$ kubectl {shown} <<EOF\n{stdin}EOF")
        else:
            self._say(f"$ kubectl {shown}")
        self._say(self._run(*arguments, stdin=stdin).rstrip())

    def _run(self, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(self._lab.bin / "kubectl"), *arguments],
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * _TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise errors.LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
