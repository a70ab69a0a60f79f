"""The operator: Services, EndpointSlices and annotations in, NftlbFarms and their statuses out.

::

    main (kopf's handlers) ──► lifecycle ──► parts:

    informers ──► cache ──► sync (queue, diff) ──► farm_writer
                              │     ▲
                              │   farms (builder, naming, annotations)
                              └──► status

Read in this order: ``main`` says what kopf calls, ``parts`` what there is; ``informers`` list and watch into the
``cache``; ``farms`` build what a Service needs; ``sync`` compares that with what exists and writes the difference;
``status`` reports. ``cache``, ``farms`` and ``model`` are pure. Nothing is ever written to an EndpointSlice, and of a
Service only its status, where that is switched on: addresses (``sync.address_assigner``) and a condition
(``sync.service_conditions``).
"""

import sys

if "kopf" in sys.modules:
    # For `kopf run --module kube_nftlb.operator`, which calls the handlers of what it imports. Commands that import a
    # part of this package load no kopf, which would take them half a second.
    from kube_nftlb.operator import main as main
