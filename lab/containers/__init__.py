"""``lab up --runtime containerd``: nodes with a real kubelet, containerd and runc, each in namespaces of its own.

``config`` (what the programs are told) and ``archive`` (an image as a file) compute only. ``cgroups``, ``images``,
``nodes`` and ``probe`` (whether this machine can run containers, by trying) change the machine.
"""
