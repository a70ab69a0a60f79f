"""What the agent reports: the node's NftlbNode, Events on the Node, and gauges."""
