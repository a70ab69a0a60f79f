"""Service and annotations in, NftlbFarms out. Pure: no I/O in any module here."""
