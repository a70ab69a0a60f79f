"""A package, so that its lab ends with its last test: pytest keeps fixtures of a folder that is none until all tests end."""
