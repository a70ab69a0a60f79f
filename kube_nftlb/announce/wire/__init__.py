"""The responder: a small process that answers ARP and NDP for the addresses that the agent names, until a deadline.

It is not part of the agent, which may be busy for seconds, and it puts no address on any interface: an address would
outlive the process, and the kubelet and network plugins would take it for the node's own.
"""
