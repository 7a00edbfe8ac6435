"""The program for spark-submit: `spark-submit $(tierfs pipeline --script) scrub --store DIR …`."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Run `tierfs pipeline` with the words of the command line, in the session that spark-submit prepared."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != own]  # its modules are no top-level ones
    sys.argv[1:1] = ["pipeline"]
    runpy.run_module("tierfs", run_name="__main__")


if __name__ == "__main__":
    main()
