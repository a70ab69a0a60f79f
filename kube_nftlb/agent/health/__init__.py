"""The answers to probes: of the kubelet, of load balancers, and on the health check ports of farms."""
