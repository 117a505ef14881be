"""The agent of a run: the built-in one, or any command that keeps the contract of Sympozium's runner.

TASK and /ipc/input/task.json say what is asked; /ipc/output/result.json, else a line between two markers on standard
output, else the exit code alone says what came of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from hookline.agent.models.names import COMPATIBLE
from hookline.errors import FileError
from hookline.kube.pod_state import ContainerPhase, Reason
from hookline.runners import Ending, Mount, Order
from hookline.runners.sandbox import python_mounts
from hookline.sympozium.environment import for_agent
from hookline.sympozium.phases import AgentSeen
from hookline.sympozium.resolve import SCRIPTED
from hookline.sympozium.result import MOST_BYTES, Result, ended, from_output, parsed
from hookline.sympozium.run.folders import Held
from hookline.sympozium.run.hooks import CANCELLED, WORKSPACE, Ground, reason_of, seconds_since
from hookline.sympozium.types import RUN_TIMEOUT, ModelSpec, RunSpec

RESULT = "output/result.json"
_OUTPUT = 4 * 1024 * 1024
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


async def run_agent(ground: Ground, task: str | None, relayed: Mapping[str, str]) -> AgentSeen:
    """Start the agent and wait for its end; what came of it is seen before this returns, also where it is cancelled.

    `task` is another one than the manifest's; `relayed` are variables for the built-in agent.
    """
    began = datetime.now(UTC)
    ground.state.change(agent=AgentSeen(state=ContainerPhase.RUNNING, started=began))
    seen = AgentSeen(state=ContainerPhase.ENDED, reason=Reason.KILLED, error=CANCELLED)
    try:
        held = await ground.quota.run(ground.site.agent_runner, _order(ground, task, relayed))
        seen = _seen(ground, held)
    except FileError as exc:
        seen = ended(None, Result(error=str(exc)), reason=Reason.NOT_STARTED)
    finally:
        seen = replace(seen, started=began, seconds=seconds_since(began))
        ground.state.change(agent=seen)
    return seen


def _order(ground: Ground, task: str | None, relayed: Mapping[str, str]) -> Order:
    spec, asked, runner = ground.spec, ground.asked, ground.site.agent_runner
    env = ground.variables(for_agent(spec), runner)
    if task is not None:
        env["TASK"] = task
    if asked.is_builtin:
        env = {**_keys(spec, ground.site.environ), **env, **relayed, "PYTHONDONTWRITEBYTECODE": "1"}
    return Order(
        argv=asked.agent_command or (sys.executable, "-P", "-m", "hookline.sympozium.run.program"),
        cwd=WORKSPACE,
        env=env,
        timeout=spec.timeout or RUN_TIMEOUT,
        output_cap=_OUTPUT,
        merge_stderr=False,
        mounts=(*ground.mounts(runner), *(_own_mounts(spec) if asked.is_builtin else ())),
        network=asked.network,
        image=asked.agent_image,
    )


def _own_mounts(spec: RunSpec) -> tuple[Mount, ...]:
    """What the built-in agent needs to see: this very Python, and a scripted model's script."""
    model = spec.model or ModelSpec()
    scripts = [model.model] if model.provider == SCRIPTED else []
    return (*python_mounts(), *(Mount(target=each, source=each, read_only=True) for each in scripts))


def _keys(spec: RunSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """The user's own key and address for the model's provider, and no others."""
    provider = (spec.model or ModelSpec()).provider.lower()
    known = COMPATIBLE.get(provider)
    names = (known.key,) if known else _ANTHROPIC if provider == "anthropic" else ()
    wanted = (*names, f"{provider.upper()}_BASE_URL")
    return {name: environ[name] for name in wanted if name in environ}


def _seen(ground: Ground, held: Held) -> AgentSeen:
    ending = held.ending
    reason, detail = reason_of(held)
    result = _result(ground, ending)
    if detail and (held.overfull or result is None or not result.error):
        result = replace(result or Result(), status="error", error=ground.mask.text(detail))
    errors = ground.mask.text(ending.last_lines())
    # What was ended has no code of its own, whatever the runner saw.
    code = ending.exit_code if ending.exited else None
    return ended(code, result, reason=reason, tail=errors)


def _result(ground: Ground, ending: Ending) -> Result | None:
    """The file if it is a whole result, else the marker's, else whatever is wrong with what there is."""
    content = ground.folder.left_in_ipc(RESULT, MOST_BYTES)
    filed = parsed(content) if content is not None else None
    if filed is not None and not filed.wrong:
        return filed
    printed = from_output(ending.stdout.text)
    return printed if printed is not None and (filed is None or not printed.wrong) else filed
