"""A package, so that its lab ends with its last test: fixtures of other folders stay until all tests have ended."""
