"""kube-nftlb: Kubernetes Services, load balanced by nftlb.

Data flows Service, EndpointSlices -> NftlbFarm (``operator``) -> view -> plan -> nftlb (``agent``, ``nftlb``).
"""

from importlib.metadata import version

__version__ = version("kube-nftlb")
