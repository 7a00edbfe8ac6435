"""Tables of Spark's catalog, which keeps no options of a source in Python.

Spark gives the options when the table is made, and only if no columns are named, and never again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.base.words.errors import InvalidRequest


def require_kept(options: Mapping[str, str]) -> None:
    """Raise InvalidRequest while a table is made; with columns Spark asks nothing, and a query has to name the path.

    Raises it for a table that `saveAsTable`, or such a query, left: Spark gives no option at all.
    """
    if not options:
        raise InvalidRequest(
            "no input path given: Spark's catalog does not keep the path of a tierfs table",
            remedy="query it by SELECT … FROM TABLE WITH (store = 'STORE', path = 'PATH'), or use load(PATH)",
        )
    given = {name.lower() for name in options}
    if "provider" in given or any(name.startswith("option.") for name in given):
        raise InvalidRequest(
            "Spark's catalog does not keep options of a tierfs table, so a read cannot find its path",
            remedy="CREATE TEMPORARY VIEW … USING tierfs OPTIONS (…), or list its columns and query it WITH (path = …)",
        )
