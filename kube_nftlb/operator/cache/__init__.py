"""The operator's cache of objects. Pure: no I/O in any module here."""
