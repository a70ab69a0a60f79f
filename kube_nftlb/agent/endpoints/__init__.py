"""Which backends of a farm this node uses. Pure: no I/O in any module here."""
