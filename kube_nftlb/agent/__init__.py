"""The agent: one per node, it brings the node's kernel to what the farms say.

::

    informers, node ──► sync.loop_state ──► sync.queue
                          │ facts          │ a batch of keys
                          ▼                ▼
                        sync.farm_index ──► sync.programmer
                                              │ sync.plan    (pure: what becomes of each farm)
                                              │ sync.apply   (the agent table, before and after the engines)
                                              ▼
                                            engine.engines ──► engine.nftables, then engine.nftlb
                                              │
    status, health ◄── sync.progress ◄── sync.verification, sync.repair ──► drift, repair

Read in this order: ``model`` has the words; ``sync.reconciler`` is the loop; ``sync.plan`` the decisions of a batch,
and ``sync.apply`` the order in which they are carried out; ``engine.base`` what an engine is; ``table`` the agent
table. ``assembly`` puts the parts together.
"""
