"""tierfs consolidate, here or by the store's holder. Part of the composition root."""

from __future__ import annotations

from dataclasses import asdict

from tierfs.app import Store
from tierfs.background import serve
from tierfs.background.ask import Question, ask
from tierfs.background.consolidation import ConsolidateReport
from tierfs.background.inline import InlineWork
from tierfs.background.upload import Report


def consolidate(store: Store, path: str, *, dry_run: bool, report: Report) -> ConsolidateReport:
    """Make few large cold objects of many small or mostly dead ones below `path`; see ColdWork.consolidate.

    Raises Unavailable without a cold tier.
    """
    work = InlineWork(store.cold_work(serve.CONSOLIDATE), store.paths.holder, store.clock)
    if dry_run:
        return work.consolidate(path, dry_run=True, report=report)

    def inline() -> dict[str, object]:
        return asdict(work.consolidate(path, dry_run=False, report=report))

    return ConsolidateReport(**ask(store.metadata, Question(serve.CONSOLIDATE, path, {}, inline), report))
