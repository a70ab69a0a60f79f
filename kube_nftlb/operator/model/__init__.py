"""Words and values that more than one part of the operator uses. Pure: no I/O in any module here."""
