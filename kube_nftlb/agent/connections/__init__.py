"""End connections to endpoints that are gone, for farms that ask for it (``spec.onGone``)."""
