"""The API objects as frozen pydantic models, and pure rules about them. No I/O.

The models of NftlbFarm, NftlbPolicy and NftlbNode are the only definition of each field: its type, default, bounds,
description and nftlb name. The CRDs are generated from them (``schema.crd``).
"""
