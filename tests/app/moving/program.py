"""A program that opens a store once and reads the segment of each line that it is sent: `program python|fsspec STORE`.

It prints the length of the bytes and the last ten. `kept`, of the way `python`, is the rest of a handle of `third` that
was opened at the beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

Read = Callable[[str], bytes]


def python(path: str) -> Read:
    import tierfs

    store = tierfs.open_store(path)
    kept = store.open("third")
    kept.read(100)
    return lambda name: (kept if name == "kept" else store.open(name)).read()


def fsspec(path: str) -> Read:
    import fsspec

    return fsspec.filesystem("tierfs", store=path).cat_file  # type: ignore[no-any-return]


def main() -> None:
    way, path = sys.argv[1:]
    read = {"python": python, "fsspec": fsspec}[way](path)
    for line in sys.stdin:
        try:
            data = read(line.strip())
            print(len(data), data[-10:].hex(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main()
