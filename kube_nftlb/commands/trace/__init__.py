"""``kubectl nftlb trace``: what happens to a connection on a node, and why, by the kernel's events. Pure: no I/O."""
