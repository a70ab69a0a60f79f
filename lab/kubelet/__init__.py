"""The stand-in for the scheduler, the kubelets and the containers of a lab: one process for all nodes.

A bound pod becomes a network namespace in which a small server listens on each container port. ``objects`` and
``scheduling`` are computation only; ``sandbox`` makes namespaces, ``servers`` serve, ``pods`` follows each pod's life.
"""
