"""Advice about each reason, in a few words; docs/conditions.md says more. No I/O."""

from typing import Final

from kube_nftlb.reasons import ConditionReason, FailureReason

ADVICE: Final[dict[ConditionReason | FailureReason, str]] = {
    "Invalid": "correct the field that the message names, or update the CustomResourceDefinitions",
    "AddressConflict": "give one of the two another address or port, or delete one",
    "ExternalIPRefused": "remove the external IP from the Service, or ask the cluster's administrator to allow it",
    "TooManyFarms": "delete farms or Services of the namespace, or ask for a higher limits.namespaceFarms of the chart",
    "TooManyPolicies": "delete NftlbPolicies of the namespace, or ask for a higher limits.namespacePolicies",
    "TooManyElements": "use fewer ports or backends, or no weights, or ask for a higher limits.farmElements",
    "NoNodes": "check the DaemonSet kube-nftlb-agent and its pods",
    "Failed": "see status.failedFarms of the node's NftlbNode",
    "Pending": "if it lasts, see whether the agents of these nodes run, and their logs",
    "EndpointsPending": "if it lasts, see whether the agents of these nodes run, and their logs",
    "NoReadyBackends": "check the readiness of the Pods, and the annotation state of Service and Pods",
    "KernelFeatureMissing": "load the kernel module that the message names, or remove the field",
    "Refused": "it is retried, at least every minute; if it lasts, report it with `kubectl nftlb sysdump`",
    "Unsupported": "change the fields that the message names, or the engine",
    "NftlbDefect": "use the alternative that the message names",
    "NftlbUnreachable": "check the container nftlb of the agent's pod on that node, and its log",
    "PortsDiffer": "make targetPort and port of the Service the same",
    "AddressInUse": "change or delete the farm or node port that the message names",
    "NoLocalBackend": "run a pod of it on that node, or use the mode dnat",
    "PolicyMissing": "create the NftlbPolicy in the farm's namespace, or remove the reference",
    "PolicyInvalid": "correct the NftlbPolicy that the message names",
    "NoEffect": "remove the part that has no effect, or correct it",
}
"""For every reason for which a farm can be unhealthy."""
