"""The modes dsr and local: the node's links, its pods, and addresses on their loopbacks."""
