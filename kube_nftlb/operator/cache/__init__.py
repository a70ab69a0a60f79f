"""Everything the operator has seen, in memory. Pure: no I/O in any module here."""
