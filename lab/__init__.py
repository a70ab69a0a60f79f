"""``kube-nftlb lab``: a Kubernetes cluster on one machine, without containers.

Nodes and pods are network namespaces joined by veth pairs, inside a private mount, PID and network namespace. The
supervisor is its first process: when it exits, for whatever reason, the kernel removes everything else.

Why not kind: a lab needs no container engine, no registry and no image. Two cores are enough for several nodes, and
``make demo`` starts two nodes and walks through a Service in 11 to 20 s. With ``--runtime containerd`` its
pods are containers.

Read in this order: ``addresses`` (address plan), ``launch``, ``init`` and ``supervisor`` (start-up), ``components`` and
``flags`` (what runs), ``network``, ``kubelet`` (turns pods into namespaces), ``lab`` (the Python interface), ``cli``.

Nothing is imported here, so that ``python -m lab.traffic`` starts quickly.
"""
