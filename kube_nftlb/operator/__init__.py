"""The operator: Services, EndpointSlices and annotations in, NftlbFarms and their statuses out.

::

    handlers, relist ──► cache ──► queue ──► reconcile ──► publish   (farms)
       (kopf, lists)     (what       │      (build, naming,   (writes)
                          is seen)   └────► status)

``annotations``, ``slices``, ``specs``, ``records``, ``build``, ``naming``, ``plan`` and ``status`` are pure decisions;
``cache`` and ``workqueue`` are state without I/O; the others are thin shells around them. Nothing is ever written to a
Service or an EndpointSlice.
"""
