"""`--workers N`: tests beside each other, in forks of the one process that has collected them.

pytest-xdist has every worker import and collect all tests anew, a tenth of the time of ten thousand of them.
"""

import itertools
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

Units = list[list[pytest.Item]]
"""Tests that one worker takes together, each in the order in which they were collected."""
FORK = multiprocessing.get_context("fork")
SHARE = 4
"""A worker takes this part of what would be its share of the rest, so that all are through at about the same time."""
LONGEST_END = 60  # seconds; a cluster takes some to end


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in that many processes")
    parser.addoption("--whole-files", action="store_true", help="give the tests of a file to one worker")


@pytest.fixture(scope="session")
def worker() -> int | None:
    """The number of this worker, from 0; None where there are none."""
    return Worker.number


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed or not session.items:
        return None
    units: Units = [[item] for item in session.items]
    if options.whole_files:
        units = [list(items) for _, items in itertools.groupby(session.items, lambda item: item.path)]
    count = min(options.workers, len(units))
    taken = FORK.Value("i")
    session.config._tmp_path_factory.getbasetemp()  # one for all
    workers = [Worker(session, number, count, units, taken) for number in range(count)]
    try:
        while at_work := {worker.receives: worker for worker in workers if not worker.receives.closed}:
            for receives in wait(list(at_work)):
                at_work[receives].report()
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
    finally:
        for worker in workers:
            worker.end()
    return True


class Worker:
    """One fork, as the process that collected the tests sees it."""

    number: int | None = None

    def __init__(self, session: pytest.Session, number: int, workers: int, units: Units, taken: Any) -> None:
        self._session = session
        self._started: tuple[str, Any] | None = None
        self.receives, sends = FORK.Pipe(duplex=False)
        self._process = FORK.Process(target=_work, args=(session, number, workers, units, taken, sends))
        # What is buffered here would be printed by each fork too.
        session.config.get_terminal_writer().flush()
        self._process.start()
        sends.close()

    def report(self) -> None:
        """Take one message of it, and give it to the plugins as if it came from this process."""
        hook, config = self._session.config.hook, self._session.config
        try:
            what, given = self.receives.recv()
        except EOFError:
            self._process.join(5)
            self.end()
            hook.pytest_runtest_logreport(report=self._lost())
            return
        if what == "started":
            self._started = given
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=config, data=given)
            hook.pytest_runtest_logreport(report=report)
        elif what == "finished":
            nodeid, location = given
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        elif what == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=given)
        else:
            # Not at the end of the pipe: a process that a test left behind may hold it.
            self._process.join()
            self.end()

    def _lost(self) -> pytest.TestReport:
        """A report on the test in which it died; those that it had taken besides were run by nobody."""
        nodeid, location = self._started or ("the start of a worker", ("", None, ""))
        told = f"the worker ended with exit code {self._process.exitcode} in this test; others may not have been run"
        return pytest.TestReport(nodeid, location, {}, "failed", told, "call")

    def end(self) -> None:
        """End it as Ctrl-C does, so that its fixtures put away what they made; one that does not end is killed."""
        if self._process.is_alive():
            os.kill(self._process.pid or 0, signal.SIGINT)
            self._process.join(LONGEST_END)
        self._process.kill()
        self._process.join()
        self.receives.close()


def _work(
    session: pytest.Session, number: int, workers: int, units: Units, taken: Any, sends: Connection
) -> None:
    """Run tests in a fork until none is left."""
    Worker.number = number
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Sender(session.config, sends))
    # The files that output is kept in are shared with the other forks, and so would the names of folders be.
    capture: Any = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders: Any = session.config._tmp_path_factory
    folders._basetemp = folders.mktemp(f"w{number}", numbered=False)
    items = _items(units, taken, workers)
    item = next(items, None)
    try:
        while item is not None:
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        sends.send(("done", None))
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)


def _items(units: Units, taken: Any, workers: int) -> Iterator[pytest.Item]:
    """The tests that this worker takes: many in a row at first, for they share fixtures, and fewer towards the end."""
    while True:
        with taken.get_lock():
            first = taken.value
            last = taken.value = first + max(1, (len(units) - first) // (SHARE * workers))
        if first >= len(units):
            return
        yield from itertools.chain.from_iterable(units[first:last])


class _Sender:
    """A plugin of a fork: what plugins of the first process are told of."""

    def __init__(self, config: pytest.Config, sends: Connection) -> None:
        self._config = config
        self._send = sends.send

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._send(("started", (nodeid, location)))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._send(("finished", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        # Its own class may be one that only this process has.
        told = f"{warning_message.category.__name__}: {warning_message.message}"
        plain = warnings.WarningMessage(
            UserWarning(told), UserWarning, warning_message.filename, warning_message.lineno
        )
        self._send(
            ("warning", {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location})
        )
