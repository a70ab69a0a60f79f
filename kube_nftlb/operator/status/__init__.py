"""The statuses that the operator writes, of farms and of policies."""
