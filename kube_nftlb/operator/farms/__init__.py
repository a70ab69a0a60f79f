"""Build NftlbFarms from a Service and its annotations, with references to its endpoints. Pure: no I/O in any module."""
