"""Which node holds which address: who may, who should, who does, and what each does about it. Pure.

The Lease of an address names its holder, and is written at a hand-over only. Whether a holder is there is seen on the
clients' own segment, where it matters: a Lease that is renewed tells nothing of a network card, a switch or a VLAN.
"""
