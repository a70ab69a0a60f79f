"""Gateway API for TCP and UDP: the farms, address requests and statuses that Gateways and routes need. Pure."""
