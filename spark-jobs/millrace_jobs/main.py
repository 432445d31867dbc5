"""What spark-submit runs; the package comes beside it as an archive.

spark-submit … --py-files millrace_jobs.zip --files insights.json main.py --config insights.json
"""

import argparse
from pathlib import Path

from millrace_jobs import config
from millrace_jobs.driver import lifecycle

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Millrace application.")
    parser.add_argument("--config", type=Path, required=True, help="written by a deployment")
    lifecycle.run(config.load(parser.parse_args().config))
