"""What the modes dsr, stlsdnat and local need of a node: its links, its pods, and addresses on their loopbacks."""
