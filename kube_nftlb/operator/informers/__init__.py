"""From the API server to the operator's cache."""
