"""The agent of a run: the built-in one, or any command that keeps the contract of Sympozium's runner.

TASK and /ipc/input/task.json say what is asked; /ipc/output/result.json, else a line between two markers on standard
output, else the exit code alone says what came of it. What an agent left is never taken for more than it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeGuard, cast

from hookline.agent.models import COMPATIBLE
from hookline.errors import FileError
from hookline.kube.pod_state import ContainerPhase, EndReason
from hookline.runners import Ending, Mount, Order
from hookline.runners.sandbox import python_mounts
from hookline.sympozium.environment import for_agent
from hookline.sympozium.phases import NO_REASON, AgentSeen
from hookline.sympozium.resolve import SCRIPTED
from hookline.sympozium.run.folders import Held
from hookline.sympozium.run.hooks import CANCELLED, WORKSPACE, Ground, reason_of, seconds_since
from hookline.sympozium.types import RUN_TIMEOUT, ModelSpec, RunSpec

BEGIN = "__SYMPOZIUM_RESULT__"
END = "__SYMPOZIUM_END__"
MOST_BYTES = 8 * 1024 * 1024
"""A longer result is refused whole: half of one would be taken for an answer."""
_MOST = 10_000_000_000
_STATUSES = ("success", "error", "skipped")
_METRICS = ("durationMs", "inputTokens", "outputTokens", "toolCalls")
RESULT = "output/result.json"
_OUTPUT = 4 * 1024 * 1024
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`wrong` says why what was left is no result."""

    status: str = "error"
    response: str = ""
    error: str = ""
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    wrong: str = ""


async def run_agent(ground: Ground, task: str | None, relayed: Mapping[str, str]) -> AgentSeen:
    """Start the agent and wait for its end; what came of it is seen before this returns, also where it is cancelled.

    `task` is another one than the manifest's; `relayed` are variables for the built-in agent.
    """
    began = datetime.now(UTC)
    ground.state.change(agent=AgentSeen(state=ContainerPhase.RUNNING, started=began))
    seen = AgentSeen(state=ContainerPhase.ENDED, reason=EndReason.KILLED, error=CANCELLED)
    try:
        held = await ground.quota.run(ground.site.agent_runner, _order(ground, task, relayed))
        seen = _seen(ground, held)
    except FileError as exc:
        seen = ended(None, Result(error=str(exc)), reason=EndReason.NOT_STARTED)
    finally:
        seen = replace(seen, started=began, seconds=seconds_since(began))
        ground.state.change(agent=seen)
    return seen


def parsed(content: bytes | str) -> Result:
    """The content of a result file."""
    given = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if len(given) > MOST_BYTES:
        return _wrong(f"has {len(given)} bytes; at most {MOST_BYTES} are read")
    try:
        value: Any = json.loads(given.decode("utf-8"))
    except UnicodeDecodeError:
        return _wrong("is not text in UTF-8")
    except (ValueError, RecursionError) as exc:
        return _wrong(f"is not whole JSON: {exc}")
    if not isinstance(value, dict):
        return _wrong(f"is a {type(value).__name__}; it must be an object with status and response")
    return _read(cast("Mapping[str, Any]", value))


def from_output(text: str) -> Result | None:
    """The result that stands in the output, on a line of its own: the last whole one, wherever that line is.

    An answer that quotes a marker has it inside its JSON, so it does not count.
    """
    for line in reversed(text.split("\n")):
        known = line.strip()
        if known.startswith(BEGIN) and known.endswith(END):
            return parsed(known.removeprefix(BEGIN).removesuffix(END))
    return _spread(text)


def ended(
    exit_code: int | None, result: Result | None, *, reason: EndReason = EndReason.EXITED, tail: str = ""
) -> AgentSeen:
    """How an agent ended, of its exit code and what it left. Its own code counts above what it says of itself."""
    found = result or Result(status="success" if exit_code == 0 else "error")
    failed = reason is not EndReason.EXITED or exit_code != 0 or found.status == "error"
    if not failed and found.status == "skipped":
        return AgentSeen(
            state=ContainerPhase.ENDED, exit_code=exit_code, skipped=found.response.strip() or NO_REASON
        )
    said = found.error or (f"the agent's result {found.wrong}" if found.wrong else "")
    if failed and not said and reason is EndReason.EXITED:
        last = tail.strip().splitlines()[-1:]
        said = f"agent exited with code {exit_code}{''.join(f': {line}' for line in last)}"
    return AgentSeen(
        state=ContainerPhase.ENDED,
        exit_code=exit_code,
        reason=reason,
        result=found.response,
        error=said if failed else "",
        usage=_usage(found.metrics),
    )


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
    """The files that the built-in agent needs: this very Python, and a scripted model's script."""
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


def _read(value: Mapping[str, Any]) -> Result:
    status = value.get("status")
    if status not in _STATUSES:
        return _wrong(f"has the status {status!r}; known: {', '.join(_STATUSES)}")
    response, error = value.get("response"), value.get("error")
    for key, text in (("response", response), ("error", error)):
        if not isinstance(text, str | None):
            return _wrong(f"has a {key} that is not a text")
    if status == "error" and not error:
        error = response or "the agent reports a failure without a reason"
    return Result(
        status=status, response=response or "", error=error or "", metrics=_metrics(value.get("metrics"))
    )


def _metrics(value: Any) -> dict[str, int]:
    """Counts that can be believed: none above a limit, and where one is negative none at all."""
    given: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    counts = {key: given.get(key) for key in _METRICS}
    found = {key: min(count, _MOST) for key, count in counts.items() if _is_number(count)}
    return {key: int(count) if min(found.values()) >= 0 else 0 for key, count in found.items()}


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _usage(metrics: Mapping[str, int]) -> dict[str, int]:
    if not metrics:
        return {}
    return {**metrics, "totalTokens": metrics.get("inputTokens", 0) + metrics.get("outputTokens", 0)}


def _spread(text: str) -> Result | None:
    """A result whose markers stand on lines of their own, or that never got to its end."""
    _, begun, rest = f"\n{text}".rpartition(f"\n{BEGIN}")
    if not begun:
        return None
    inner, closed, _ = rest.partition(END)
    return parsed(inner.strip()) if closed else _wrong(f"begins with {BEGIN} and has no {END}")


def _wrong(why: str) -> Result:
    return Result(status="error", wrong=why)
