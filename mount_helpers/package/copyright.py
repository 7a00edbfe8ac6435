"""Print the copyright file of the package: the licence of tierfs, and those of the packages in it."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tierfs
Comment: The notices are in /usr/share/doc/tierfs/NOTICE. The package contains the Python packages below, unchanged.
 Each has its copyright and the full text of its licence in its own metadata:
 /usr/lib/tierfs/package/lib/python3*/site-packages/NAME-VERSION.dist-info.

Files: *
Copyright: the authors of tierfs
License: Apache-2.0
 On Debian systems the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
"""


def main() -> None:
    """Print it."""
    listed = re.findall(r"^([a-z0-9-]+)==(\S+)", (_ROOT / "mount_helpers/locked/package.txt").read_text(), re.M)
    licences = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", (_ROOT / "docs/licences.md").read_text(), re.M))
    print(_HEAD)
    print("Comment: Packages in it:")
    for name, version in listed:
        print(f" {name} {version}: {licences[name]}")


if __name__ == "__main__":
    main()
