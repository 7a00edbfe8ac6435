"""The command `tierfs`, also as `python -m tierfs`."""

import sys
from contextlib import suppress

from tierfs import __version__

_VERSION = (["--version"], ["-V"], ["version"])


def main() -> None:
    """Run the command line and exit."""
    # Scripts ask for the version often, and click takes 50 of the 70 ms (measured). Where the output fails, the
    # command line tells why.
    if sys.argv[1:] in _VERSION and sys.stdout is not None:
        with suppress(OSError):
            print(f"tierfs, version {__version__}", flush=True)
            return
    from tierfs.cli.main import main

    main()


if __name__ == "__main__":
    main()
