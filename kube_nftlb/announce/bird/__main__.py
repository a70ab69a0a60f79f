"""``python -m kube_nftlb.announce.bird RUN_DIR SECRET_DIR [BIRD]``: run BIRD for the agent, until it has ended."""

import signal
import sys
from pathlib import Path

from kube_nftlb.announce.bird.files import PASSWORDS
from kube_nftlb.announce.bird.process import BirdProcess

process = BirdProcess(
    sys.argv[3] if len(sys.argv) > 3 else "bird", Path(sys.argv[1]), Path(sys.argv[2]), Path(PASSWORDS)
)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: process.end())
try:
    process.run()
except OSError as error:
    sys.exit(str(error))
