"""The agent: one per node, it brings the node's kernel to what the farms say.

::

    informers, node ──► sync.inputs ──► sync.queue
                          │ facts          │ keys
                          ▼                ▼
                        sync.farm_index ──► sync.programmer
                                              │ sync.decide   (what becomes of a farm; resolve: as this node serves it)
                                              │ sync.changes  (and what it has in the agent table: table)
                                              ▼
                                            engine.apply ──► nftlb, agent table
                                              │
    status, health ◄── sync.progress ◄── sync.verification, sync.repair ──► engine.drift, engine.repair

Read in this order: ``model`` has the words; ``sync.reconciler`` is the loop; ``sync.decide`` the decisions;
``engine.base`` what an engine is, ``engine.nftlb`` the first one; ``table`` the nftables table that all engines share.
``assembly`` puts the parts together.
"""
