"""The workers: what is wanted is compared with what exists, and the difference is written."""
