"""The operator: Services, EndpointSlices and annotations in, NftlbFarms and their statuses out.

::

    informers ──► cache ──► sync (queue, diff) ──► farm_writer
                              │     ▲
                              │   farms (builder, naming, annotations)
                              └──► status

Read in this order: ``informers`` list and watch into the ``cache``; ``farms`` build what a Service needs; ``sync``
compares that with what exists and writes the difference; ``status`` reports. ``cache``, ``farms`` and ``model`` are
pure. Nothing is ever written to a Service or an EndpointSlice.
"""
