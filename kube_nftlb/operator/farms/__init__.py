"""Build NftlbFarms from a Service, its EndpointSlices and annotations. Pure: no I/O in any module here."""
