"""Hook files made live: what the runner of a run cannot do is said, not left out."""

import sys
from pathlib import Path

import pytest

from hookline.engine.context import HookContext
from hookline.engine.pipeline import Pipeline
from hookline.hookfile.attach import attached
from hookline.runners import Ending, Order
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner

WARM = """
hooks:
  - name: warm
    on: tool.start
    command: [PYTHON, answer.py]
    warm: fork
  - name: cold
    on: tool.start
    command: [PYTHON, answer.py]
"""


class Elsewhere:
    """A runner that is not the local one, as a sandbox would be."""

    capabilities = SandboxRunner.capabilities

    def __init__(self) -> None:
        self.inner = LocalRunner()
        self.ran: list[tuple[str, ...]] = []

    async def run(self, order: Order) -> Ending:
        self.ran.append(order.argv)
        return await self.inner.run(order)

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "answer.py").write_text('print(\'{"decision": "block", "reason": "no"}\')')
    file = tmp_path / "hookline.yaml"
    file.write_text(WARM.replace("PYTHON", sys.executable).replace("answer.py", str(tmp_path / "answer.py")))
    return file


async def test_a_warm_hook_on_a_runner_that_keeps_none_warm_is_told_and_still_guards(file):
    runner = Elsewhere()
    found = attached(file, runner)
    assert found.problems == []
    assert found.notes == [
        f"{file}:3: hook warm: warm: fork is for processes of this machine; in the sandbox each call starts cold"
    ]
    context = HookContext(workflow_id="w", point="tool.start", current_tool="bash", current_payload={})
    try:
        outcome = await Pipeline(found.hooks).fire(context)
    finally:
        await runner.close()
    assert (outcome.action, outcome.hook) == ("block", "warm")
    assert len(runner.ran) == 1


async def test_on_this_machine_there_is_nothing_to_tell(file):
    runner = LocalRunner()
    assert attached(file, runner).notes == []
    await runner.close()
