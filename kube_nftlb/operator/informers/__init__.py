"""List and watch objects into the operator's cache."""
