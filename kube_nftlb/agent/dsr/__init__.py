"""The modes dsr, stlsdnat and local: the node's links, its pods, and addresses on their loopbacks."""
