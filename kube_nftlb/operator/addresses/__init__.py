"""Addresses for Services of type LoadBalancer, from NftlbAddressPools: which ones, and why not. Pure."""
