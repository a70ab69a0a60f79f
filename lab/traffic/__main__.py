"""``python -m lab.traffic count | hammer | stream | steady | echo | until-answers | until-refuses``."""

import json
import sys

from lab.traffic.command import run

if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:])), flush=True)
