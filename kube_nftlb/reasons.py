"""Every word in CamelCase that says why: of conditions, of the farms that failed on a node, and of Events.

What produces a reason has one of these types, so there is no other; docs/operations.md says of each what to do.
"""

from typing import Literal

ConditionReason = Literal[
    "Valid",
    "Invalid",
    "AddressConflict",
    "AllNodes",
    "NotAccepted",
    "NoNodes",
    "Failed",
    "Pending",
    "NoReadyBackends",
]
"""Of an NftlbFarm or NftlbPolicy: its conditions, and ``status.reason`` of a farm."""

NodeReason = Literal[
    "AgentReady",
    "NftlbUnreachable",
    "Reachable",
    "Unreachable",
    "InSync",
    "Pending",
    "FarmsFailed",
]
"""Of an NftlbNode's conditions."""

FailureReason = Literal[
    "Invalid",
    "KernelFeatureMissing",
    "Refused",
    "Unsupported",
    "NftlbDefect",
    "PortsDiffer",
    "AddressInUse",
    "NoLocalBackend",
    "PolicyMissing",
    "PolicyInvalid",
    "NoEffect",
]
"""Why a node does not have a farm as it is wanted: in ``status.failedFarms`` of its NftlbNode."""

OperatorEvent = Literal[
    "InvalidAnnotation",
    "InvalidEndpoint",
    "ExternalIPRefused",
    "TooManyEndpoints",
    "TooManyAddresses",
    "TooManySourceRanges",
    "FarmNameTaken",
    "FarmRefused",
    "AddressConflict",
    "FarmFailed",
    "ForgedOwner",
]
"""Of Events that the operator writes."""

AgentEvent = Literal[
    "FailedToStartServiceHealthcheck",
    "NftlbUnreachable",
    "NftlbReachable",
    "FarmsFailed",
    "FarmsProgrammed",
]
"""Of Events that an agent writes."""

EventReason = OperatorEvent | AgentEvent
