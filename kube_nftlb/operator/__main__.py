"""``python -m kube_nftlb.operator``: the operator without the rest of the command line."""

import os

from kube_nftlb.operator.main import main
from kube_nftlb.settings import OperatorSettings

main(OperatorSettings.from_environment(os.environ))
