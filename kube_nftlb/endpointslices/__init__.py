"""EndpointSlices, and the backends that farms get from them. Pure: no I/O in any module here."""
