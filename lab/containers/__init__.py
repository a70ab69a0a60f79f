"""``lab up --runtime containerd``: nodes with a real kubelet, containerd and runc, each in namespaces of its own.

``config`` (configuration files) and ``archive`` (images as files) are computation only. ``cgroups``, ``images``,
``nodes`` and ``probe`` (can this machine run containers?) change the machine.
"""
