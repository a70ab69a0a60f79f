"""kube-nftlb: Kubernetes Services, load balanced by nftlb.

Data flows Service, EndpointSlices -> NftlbFarm (``operator``) -> view -> plan -> nftlb (``agent``, ``nftlb``).
"""

__version__ = "0.1.0"
