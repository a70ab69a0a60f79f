"""Addresses and frames for tests."""

from ipaddress import ip_address

from kube_nftlb.announce.wire.heard import Asked

MAC = bytes.fromhex("020000000001")
OTHER = bytes.fromhex("020000000002")
CLIENT = bytes.fromhex("0200000000cc")
VIP4, VIP6 = ip_address("192.0.2.10").packed, ip_address("2001:db8::a:b:c").packed
CLIENT4, CLIENT6 = ip_address("192.0.2.200").packed, ip_address("fe80::cc").packed
ASKED4, ASKED6 = Asked(VIP4, CLIENT, CLIENT4), Asked(VIP6, CLIENT, CLIENT6)
