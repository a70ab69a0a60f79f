"""The command-line flags of the Kubernetes components and of etcd. Computation only."""

from lab import addresses, credentials
from lab.addresses import NodePlan
from lab.state import LabFiles

_ETCD_URL = "http://127.0.0.1:2379"
_ETCD_PEER_URL = "http://127.0.0.1:2380"
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "service-cidr-controller",
    "statefulset-controller",
)
_CONTROLLERS_WITH_CONTAINERS = (
    # Removes the not-ready taint from a node that has become Ready.
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    # Publishes the certificate by which pods trust the API server.
    "root-ca-certificate-publisher-controller",
)
_SYNCS = ("deployment", "replicaset", "service-endpoint", "endpoint", "namespace")


def etcd(files: LabFiles) -> dict[str, str]:
    """Return the flags of etcd."""
    return {
        "data-dir": str(files.etcd),
        "listen-client-urls": _ETCD_URL,
        "advertise-client-urls": _ETCD_URL,
        "listen-peer-urls": _ETCD_PEER_URL,
        "initial-advertise-peer-urls": _ETCD_PEER_URL,
        "initial-cluster": f"default={_ETCD_PEER_URL}",
        "quota-backend-bytes": str(4 << 30),
    }


def api_server(files: LabFiles) -> dict[str, str]:
    """Return the flags of kube-apiserver."""
    secrets = files.secrets
    key = str(secrets / credentials.SERVICE_ACCOUNT_KEY)
    return {
        "etcd-servers": _ETCD_URL,
        "bind-address": "0.0.0.0",  # noqa: S104 (in the lab's own network namespace)
        "secure-port": str(addresses.API_PORT),
        "advertise-address": addresses.API_HOST,
        "tls-cert-file": str(secrets / credentials.CERTIFICATE),
        "tls-private-key-file": str(secrets / credentials.PRIVATE_KEY),
        "token-auth-file": str(secrets / credentials.TOKENS),
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": addresses.SERVICE_CIDRS,
        "allow-privileged": "true",
        # No DNS resolves the names of the nodes.
        "kubelet-preferred-address-types": "InternalIP",
        "max-requests-inflight": "2000",
        "max-mutating-requests-inflight": "1000",
    }


def controller_manager(files: LabFiles, *, with_containers: bool) -> dict[str, str]:
    """Return the flags of kube-controller-manager."""
    more = _CONTROLLERS_WITH_CONTAINERS if with_containers else ()
    return {
        "kubeconfig": str(files.inside_kubeconfig),
        "controllers": ",".join((*_CONTROLLERS, *more)),
        "root-ca-file": str(files.secrets / credentials.CERTIFICATE),
        "leader-elect": "false",
        "service-account-private-key-file": str(files.secrets / credentials.SERVICE_ACCOUNT_KEY),
        "kube-api-qps": "2000",
        "kube-api-burst": "4000",
        "endpointslice-updates-batch-period": "0",
        "endpoint-updates-batch-period": "0",
        **{f"concurrent-{kind}-syncs": "20" for kind in _SYNCS},
    }


def scheduler(files: LabFiles) -> dict[str, str]:
    """Return the flags of kube-scheduler."""
    return {"kubeconfig": str(files.inside_kubeconfig), "leader-elect": "false"}


def kubelet(files: LabFiles, node: NodePlan) -> dict[str, str]:
    """Return the flags of a node's kubelet."""
    return {
        "config": str(files.kubelet_config(node.name)),
        "kubeconfig": str(files.inside_kubeconfig),
        "hostname-override": node.name,
        "node-ip": ",".join(str(address.ip) for address in node.addresses),
    }


def kube_proxy(files: LabFiles, node: NodePlan, mode: str) -> dict[str, str]:
    """Return the flags of a node's kube-proxy, before the settings of the lab."""
    return {
        "kubeconfig": str(files.inside_kubeconfig),
        "proxy-mode": mode,
        "hostname-override": node.name,
        "cluster-cidr": addresses.POD_CIDRS,
        # These settings belong to the machine, not to a network namespace.
        "conntrack-max-per-core": "0",
        "conntrack-min": "0",
        "conntrack-tcp-timeout-established": "0s",
        "conntrack-tcp-timeout-close-wait": "0s",
    }
