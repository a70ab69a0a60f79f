"""``python -m kube_nftlb.announce.wire SOCKET``: answer ARP and NDP for the agent, until a signal."""

import sys
from pathlib import Path

from kube_nftlb.announce.wire import service

try:
    service.run(Path(sys.argv[1]))
except OSError as error:
    sys.exit(str(error))
