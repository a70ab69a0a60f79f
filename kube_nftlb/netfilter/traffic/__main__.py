"""``python -m kube_nftlb.netfilter.traffic SECONDS``: count for the agent, until it closes the pipe."""

import math
import os
import sys

from kube_nftlb import errors
from kube_nftlb.netfilter.traffic import counting

_NICE = 10
"""Traffic and agent go first."""

os.nice(_NICE)
try:
    counting.run(float(sys.argv[1]), math.inf)
except (errors.KernelError, OSError) as error:
    sys.exit(str(error))
