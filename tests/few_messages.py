"""What a process of xdist tells of a test: the report of its call, and any that says more than that it passed."""

from __future__ import annotations

from typing import Any

import pytest


def tell_less(config: pytest.Config) -> None:
    """Let this process send two messages for a test that passes, not six.

    The others are of use only to who asks how long set-ups take, or for a file of all reports: then nothing is changed.
    """
    if config.option.durations is not None or config.option.xmlpath is not None:
        return
    (telling,) = (plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "run_one_test"))
    config.pluginmanager.unregister(telling)
    telling.__class__ = _brief(type(telling))
    config.pluginmanager.register(telling)


def _brief(interactor: Any) -> Any:
    """Return the class of xdist that tells, changed; it is executed in this process and is in no module."""

    class Brief(interactor):  # type: ignore[misc]
        def pytest_runtest_logstart(self) -> None:
            """No message: xdist shows a test when it has ended."""

        def pytest_runtest_logfinish(self) -> None:
            """No message: xdist has one of its own."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or not report.passed:
                super().pytest_runtest_logreport(report)

    return Brief
