"""Answers to health probes: of the kubelet, of load balancers, and on healthCheckNodePorts."""
