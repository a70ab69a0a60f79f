"""The reasons of conditions, of farms that failed on a node, and of Events.

Whatever produces a reason has one of these types, so there are no others. docs/conditions.md explains each.
"""

from typing import Literal

ConditionReason = Literal[
    "Valid",
    "Invalid",
    "AddressConflict",
    "ExternalIPRefused",
    "TooManyFarms",
    "TooManyPolicies",
    "AllNodes",
    "NotAccepted",
    "NoNodes",
    "Failed",
    "Pending",
    "EndpointsPending",
    "NoReadyBackends",
    "TerminatingBackends",
    "NoEffect",
]
"""Reasons of conditions of NftlbFarms and NftlbPolicies, and of ``status.reason`` of a farm."""

GateReason = Literal["AllNodes", "NotServed", "Pending"]
"""Reasons of the readiness gate of Pods."""

KubeProxyReason = Literal[
    "NoKubeProxy",
    "KubeProxyRuns",
    "KubeProxyRulesPending",
    "KubeProxyRulesLeft",
    "KubeProxyRulesReturned",
    "KubeProxyUnknown",
]
"""Reasons of the condition KubeProxyGone of NftlbNodes."""

NodeReason = Literal[
    "AgentReady",
    "AgentSilent",
    "NftlbUnreachable",
    "Reachable",
    "Unreachable",
    "InSync",
    "Pending",
    "FarmsFailed",
    "SyncFailed",
    KubeProxyReason,
]
"""Reasons of conditions of NftlbNodes."""

FailureReason = Literal[
    "Invalid",
    "KernelFeatureMissing",
    "Refused",
    "Unsupported",
    "NftlbDefect",
    "NftlbUnreachable",
    "TooManyElements",
    "PortsDiffer",
    "AddressInUse",
    "NoLocalBackend",
    "PolicyMissing",
    "PolicyInvalid",
    "NoEffect",
]
"""Reasons that a farm is not programmed as requested on a node: in ``status.failedFarms`` of its NftlbNode."""

GatewayReason = Literal[
    "Accepted",
    "AddressNotAssigned",
    "AddressNotUsable",
    "AddressesAssigned",
    "BackendNotFound",
    "Invalid",
    "InvalidKind",
    "InvalidParameters",
    "InvalidRouteKinds",
    "ListenerConflict",
    "ListenersNotValid",
    "NoConflicts",
    "NoMatchingParent",
    "NotAllowed",
    "NotAllowedByListeners",
    "NotAssigned",
    "ParentNotAccepted",
    "ParentNotProgrammed",
    "PartiallyAssigned",
    "Pending",
    "Programmed",
    "ProtocolConflict",
    "RefNotPermitted",
    "ResolvedRefs",
    "SupportedVersion",
    "TooManyGateways",
    "TooManyListeners",
    "TooManyRoutes",
    "UnsupportedAddress",
    "UnsupportedProtocol",
    "UnsupportedValue",
    "UnsupportedVersion",
]
"""Reasons of conditions of the objects of Gateway API: its own words, but for TooManyGateways and TooManyRoutes."""

AddressProblem = Literal["PoolExhausted", "NoPool", "AddressTaken", "NotAllowed"]
"""Why a Service has no address of an NftlbAddressPool, or not the one that it asks for."""

AddressReason = Literal["Assigned", AddressProblem]
"""Reasons of the condition AddressAssigned of Services."""

PoolReason = Literal["Valid", "Invalid", "AddressesFree", "PoolExhausted"]
"""Reasons of conditions of NftlbAddressPools."""

OperatorEvent = Literal[
    AddressProblem,
    "InvalidAnnotation",
    "InvalidEndpoint",
    "ExternalIPRefused",
    "TooManyEndpoints",
    "TooManyOverrides",
    "TooManyAddresses",
    "TooManyPorts",
    "TooManyFarms",
    "TooManyPolicies",
    "TooManySourceRanges",
    "InvalidSourceRange",
    "FarmNameTaken",
    "FarmRefused",
    "FarmNotWritten",
    "AddressConflict",
    "FarmFailed",
    "NotProgrammed",
    "Programmed",
    "EngineChanged",
    "ForgedOwner",
    "ReadinessGatePending",
    "AgentSilent",
    "AgentReports",
    "NotAccepted",
    "AddressNotAssigned",
    "RefsNotResolved",
]
"""Reasons of the operator's Events."""

AgentEvent = Literal[
    "FailedToStartServiceHealthcheck",
    "NftlbUnreachable",
    "NftlbReachable",
    "FarmsFailed",
    "FarmsProgrammed",
    "KubeProxyRulesLeft",
    "KubeProxyRulesReturned",
    "KubeProxyRulesRemoved",
    "KubeProxyGone",
]
"""Reasons of the agents' Events."""

EventReason = OperatorEvent | AgentEvent

ServiceReason = Literal["AllNodes", "Pending"] | EventReason
"""Reasons of the condition of Services."""
