"""The stand-in for scheduler, kubelets and containers of a lab: one process for all nodes.

A bound pod becomes a network namespace with a small server on each container port. ``objects`` and ``scheduling`` are
computation only; ``sandbox`` creates namespaces, ``servers`` answer requests, ``pods`` follows the life of each pod.
"""
