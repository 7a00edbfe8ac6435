"""Write the programs of the package: `programs.py DIRECTORY PYTHON`, a file for each that tierfs declares.

PYTHON is the interpreter's path once it is installed; tierfs itself is found on the path of imports.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from pathlib import Path

_PROGRAM = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


def main() -> None:
    """Write them."""
    directory, python = Path(sys.argv[1]), sys.argv[2]
    for declared in distribution("tierfs").entry_points.select(group="console_scripts"):
        path = directory / declared.name
        path.write_text(_PROGRAM.format(python=python, module=declared.module, function=declared.attr))
        path.chmod(0o755)


if __name__ == "__main__":
    main()
