"""The signals of a process that serves: end, reload, or report its tasks.

SIGTERM and SIGINT end. SIGHUP opens the log again, and reloads settings and credentials. SIGUSR1 writes all tasks and
threads to the log.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import trio

from tierfs.base.system import daemon_log, service_manager

log = logging.getLogger(__name__)

# For trio.open_signal_receiver.
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

Reload = Callable[[], Awaitable[None]]


async def until_told_to_end(signals: AsyncIterator[int], reload: Reload) -> None:
    """Obey signals until one says to end. The error of a reload is logged; the old settings stay.

    The service manager gets a sign of life as long as the loop runs, and is notified of reloads and of the end.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay_alive)
        await _obey(signals, reload)
        nursery.cancel_scope.cancel()
    service_manager.notify_stopping()


async def _stay_alive() -> None:
    every_s = service_manager.alive_every_s()
    while every_s is not None:
        service_manager.notify_alive()
        await trio.sleep(every_s)


async def _obey(signals: AsyncIterator[int], reload: Reload) -> None:
    async for number in signals:
        if number == signal.SIGUSR1:
            log.info("tasks and threads:\n%s", "\n".join((*_tasks(), *stacks())))
        elif number == signal.SIGHUP:
            await _reload(reload)
        else:
            log.info("%s: ending", signal.Signals(number).name)
            return


async def _reload(reload: Reload) -> None:
    service_manager.notify_reloading()
    try:
        daemon_log.reopen()
        await reload()
    except Exception as exc:
        log.error("SIGHUP: nothing was reloaded: %s", exc)
    else:
        log.info("SIGHUP: settings and credentials were reloaded")
    service_manager.notify_ready()


def _tasks() -> Iterator[str]:
    """Yield the tree of trio's tasks, each with the line it waits in."""
    root = trio.lowlevel.current_root_task()
    if root is not None:
        yield from _task_lines(root, 0)


def _task_lines(task: trio.lowlevel.Task, depth: int) -> Iterator[str]:
    frames = [f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{line})" for frame, line in task.iter_await_frames()]
    yield f"{'  ' * depth}task {task.name}: {frames[-1] if frames else 'runs'}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _task_lines(child, depth + 1)


def stacks() -> Iterator[str]:
    """Yield the stack of every thread."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        yield f"thread {thread.name}:"
        yield from (line.rstrip("\n") for line in traceback.format_stack(frame))
