"""``python -m lab.traffic count | hammer | stream | steady | arrivals | answerers | echo | until-answers | ...``."""

import json
import sys

from lab.traffic.command import run

if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:])), flush=True)
