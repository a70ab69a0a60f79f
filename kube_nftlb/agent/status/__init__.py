"""The reports of the agent: the node's NftlbNode, Events on the Node, and gauges."""
