"""Select the backends of a farm that this node uses. Pure: no I/O in any module here."""
