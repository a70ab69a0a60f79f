"""All metrics of operator and agent, each declared here and nowhere else.

No label has a value per Service, farm, node or client, so that the number of series does not grow with the cluster; but
for those of ``traffic``, of which an agent exports a limited number, and none by default.
docs/metrics.md is generated from the declarations.
"""

# All names, so that a metric is written down once, where it is declared.
from kube_nftlb.metrics.agent import *  # noqa: F403
from kube_nftlb.metrics.common import *  # noqa: F403
from kube_nftlb.metrics.operator import *  # noqa: F403
from kube_nftlb.metrics.registry import *  # noqa: F403
