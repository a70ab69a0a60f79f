"""``kube-nftlb lab``: a Kubernetes cluster on one machine, without containers.

Nodes and pods are network namespaces joined by veth pairs, inside a private mount, PID and network namespace. Its first
process is the supervisor: when that ends, however it ends, the kernel takes away everything else.

Read in this order: ``addresses`` (who has which address), ``launch`` and ``supervisor`` (how it starts), ``components``
(what runs), ``network``, ``kubelet`` (what makes pods of namespaces), ``lab`` (the Python interface), ``cli``.

Nothing is imported here, so that ``python -m lab.traffic`` starts quickly.
"""
