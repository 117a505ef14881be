"""What holds for every test: known statement ids, no silent skips in CI, no deadlines."""

import gc
import os
import random
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.statements import statements, wrong_markers

pytest_plugins = ["tests.command", "tests.terminals", "tests.kube.fixtures", "tests.workers"]

# A slow machine is no failure.
settings.register_profile("hookline", deadline=None)
settings.load_profile("hookline")

KNOWN = statements()
COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""All tests of the files that were asked for, also those that `-m` leaves out."""


def pytest_configure() -> None:
    # Whoever started us aside may have switched these off, and tests are about what they do.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("HOOKLINE_SEED", str(random.randrange(1 << 32)))


def pytest_report_header() -> str:
    return f"HOOKLINE_SEED={os.environ['HOOKLINE_SEED']}"


@pytest.fixture
def chance() -> random.Random:
    """What is random in a test comes from here, so that the printed seed repeats it."""
    return random.Random(int(os.environ["HOOKLINE_SEED"]))


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Journals and approvals go to a folder of the tests, never to that of the user who runs them; nor do that user's
    hook files hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are no garbage: looking through them again and again takes a quarter of the collection."""
    if gc.get_freeze_count():
        return (yield)  # a session inside of a test: what the test left behind is still to be found
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()  # what was left open meanwhile is told, as ever
        gc.freeze()
        gc.enable()
        # Most of what a test makes is gone without a search; by default a tenth of the time goes into searches.
        gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = items.copy()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    items = [node for node in report.result or [] if isinstance(node, pytest.Item)]
    wrong = [message for item in items for message in wrong_markers(item, KNOWN)]
    if wrong:
        report.outcome = "failed"
        report.longrepr = "\n".join(wrong)
        report.result = []
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a real cluster is marked so; tools/real.py runs it beside the rest."""
    if "kubeconfig" in getattr(item, "fixturenames", ()):
        item.add_marker("cluster")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    harmless = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if session.exitstatus in harmless and skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = skips(config)
    if not skipped:
        return
    terminalreporter.section("skipped, which HOOKLINE_CI=1 does not allow", red=True)
    for line in skipped:
        terminalreporter.line(line)


def skips(config: pytest.Config) -> list[str]:
    """Each skipped test or file with its reason; empty where skipping is allowed."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("HOOKLINE_CI") != "1" or config.option.collectonly or reporter is None:
        return []
    return sorted(f"{report.nodeid}: {reason(report)}" for report in reporter.stats.get("skipped", []))


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
