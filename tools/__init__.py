"""What developers run in a checkout, by `make`: generators of files, and lints of our own. Not part of the wheel."""
