"""Routers of a lab: FRR in network namespaces between the nodes and the client, and BIRD for the nodes."""
