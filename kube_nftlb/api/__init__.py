"""What the API server stores, as frozen pydantic models, and pure rules over it. No I/O.

The models of NftlbFarm, NftlbPolicy and NftlbNode are the only definition of each field: its type, default, bounds,
description and its spelling in nftlb. The CRDs are generated from them (``crd``).
"""
