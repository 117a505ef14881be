"""The agent of a run as it is seen from outside: its start, the hooks that it asks, and its result.

It is the built-in one (`program`), or any command that keeps the contract of Sympozium's runner. The task is in TASK and
/ipc/input/task.json; the result is /ipc/output/result.json, else a line between two markers on standard output, else the
exit code alone. A result that is cut or malformed is an error, never an answer.

The built-in agent asks the hooks of the command line at its steps and tools, over a socket in /ipc with one line of JSON
for each point; the hooks run out here, where their files are, and their answer goes back as one line. Where no answer
comes, the agent acts as if the hook broke: no answer is no permission. Records of the agent come the same way, in the
format of `journal.stream`, and get no answer.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard, cast

from hookline.agent.models import COMPATIBLE
from hookline.engine.context import HookContext
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import OpenScope
from hookline.engine.pipeline import Pipeline
from hookline.engine.plain import mapping, plain
from hookline.engine.point import Point, Scope, points_in
from hookline.engine.record import Begun, Decided, Ended, Record
from hookline.engine.result import HookAction, HookResult, Outcome
from hookline.errors import AgentFailed, FileError, HooklineError
from hookline.handlers.process import WORKSPACE
from hookline.journal.masking import Mask
from hookline.journal.stream import INSIDE, MARK, InnerScopes, Intake, lacking
from hookline.journal.stream import MOST_BYTES as MOST_RECORDED
from hookline.kube.pod_state import ContainerPhase, EndReason
from hookline.runners import Ending, Mount, Order
from hookline.runners.sandbox import python_mounts
from hookline.sympozium.environment import for_agent
from hookline.sympozium.phases import AgentSeen
from hookline.sympozium.resolve import SCRIPTED
from hookline.sympozium.run.folders import BEGIN, END, MOST_LINE, NO_REASON, RESULT, SOCKET, Held, at_socket
from hookline.sympozium.run.hooks import CANCELLED, Ground, reason_of, seconds_since
from hookline.sympozium.types import RUN_TIMEOUT, ModelSpec, RunSpec
from hookline.tasks import cancel_and_wait

MOST_BYTES = 8 * 1024 * 1024
"""A longer result is refused whole: half of one would be taken for an answer."""
_MOST = 10_000_000_000
_STATUSES = ("success", "error", "skipped")
_METRICS = ("durationMs", "inputTokens", "outputTokens", "toolCalls")
_OUTPUT = 4 * 1024 * 1024
_LAST_LINES = 5.0
"""Seconds to read the rest of the socket once the agent has ended."""
_INSIDE = frozenset(Scope) - {Scope.WORKSPACE, Scope.RUN, Scope.AGENT}
"""The scopes that are opened by the agent itself, and not out here."""
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result that an agent left; `wrong` says why it cannot be used."""

    status: str = "error"
    response: str = ""
    error: str = ""
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    wrong: str = ""


async def run_agent(ground: Ground, task: str | None, variables: Mapping[str, str]) -> AgentSeen:
    """Start the agent and wait for its end; its state is kept before this returns, also where it is cancelled.

    `task` is another one than the manifest's; `variables` are more of them for the built-in agent.
    """
    began = datetime.now(UTC)
    ground.change(agent=AgentSeen(state=ContainerPhase.RUNNING, started=began))
    seen = AgentSeen(state=ContainerPhase.ENDED, reason=EndReason.KILLED, error=CANCELLED)
    try:
        held = await ground.quota.run(ground.site.agent_runner, _order(ground, task, variables))
        seen = _seen(ground, held)
    except FileError as exc:
        seen = ended(None, Result(error=str(exc)), reason=EndReason.NOT_STARTED)
    finally:
        seen = replace(seen, started=began, seconds=seconds_since(began))
        ground.change(agent=seen)
    return seen


def inner_points(hooks: Iterable[Hook]) -> list[Point]:
    """The points of these hooks that lie inside the agent's work."""
    return points_in({point for hook in hooks for point in hook.points}, _INSIDE)


@asynccontextmanager
async def relayed(
    ipc: Path, hooks: tuple[Hook, ...], scope: OpenScope, mask: Mask | None = None
) -> AsyncGenerator[None]:
    """Answer for the hooks as long as the agent works, and record its scopes below `scope`."""
    relay = _Relay(Pipeline(hooks, scope.run.recorder), scope, mask)
    try:
        listening = _bound(ipc)
    except AgentFailed as exc:
        if inner_points(hooks):
            raise
        relay.note(f"the agent's inner records are missing: {exc}")
        yield
        return
    server = await asyncio.start_unix_server(relay.served, sock=listening, limit=MOST_LINE)
    try:
        async with server:
            yield
            await relay.over()
    finally:
        await relay.ended()


class _Relay:
    """The outer end of the socket."""

    def __init__(self, pipeline: Pipeline, scope: OpenScope, mask: Mask | None) -> None:
        self._pipeline = pipeline
        self._scope = scope
        self._scopes = InnerScopes(scope.run.id, scope.facts.scope_id, mask)
        self._intakes: list[Intake] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        # Each connection has numbers of its own; a tool inside may open one too.
        intake = Intake(self._write, self._scopes.admit, trusted=False, most=MOST_RECORDED)
        self._intakes.append(intake)
        try:
            while line := await reader.readline():
                if line.startswith(MARK.encode()):
                    await intake.take(line.decode(errors="replace"))
                    continue
                writer.write(json.dumps(await self._answered(line)).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError):
            pass  # an invalid line, or the connection is gone: the other side treats the hook as broken
        finally:
            writer.close()

    async def over(self) -> None:
        """The agent has ended; read the lines that it has sent."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=_LAST_LINES)

    async def ended(self) -> None:
        await cancel_and_wait(*self._serving)
        for each in self._scopes.left():
            await self._scope.run.recorder.write(each)
        for text in lacking(
            sum(each.dropped for each in self._intakes), sum(each.missing for each in self._intakes)
        ):
            self.note(text)

    def note(self, text: str) -> None:
        run, at = self._scope.run, self._scope.facts.scope_id
        run.recorder.note(Decided(run.id, at, INSIDE, time.time(), HookAction.CONTINUE, note=text))

    async def _write(self, record: Record) -> bool:
        if isinstance(record, Begun | Ended):
            await self._scope.run.recorder.write(record)
        return True

    async def _answered(self, line: bytes) -> dict[str, Any]:
        given: Mapping[str, Any] = json.loads(line)
        try:
            # The run and scope are ours to say; the other side of the socket is not trusted.
            at = self._scopes.here(given.get("scope_id"))
            context = HookContext.from_dict({**given, "run_id": self._scope.run.id, "scope_id": at})
        except (HooklineError, AttributeError, TypeError, ValueError) as exc:
            return HookResult.fail(f"not a context: {exc}").to_dict()
        return plain(_one_result(context, await self._pipeline.fire(context)).to_dict())


def parsed(content: bytes | str) -> Result:
    """The content of a result file."""
    given = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if len(given) > MOST_BYTES:
        return Result(wrong=f"has {len(given)} bytes; at most {MOST_BYTES} are read")
    try:
        value: Any = json.loads(given.decode("utf-8"))
    except UnicodeDecodeError:
        return Result(wrong="is not text in UTF-8")
    except (ValueError, RecursionError) as exc:
        return Result(wrong=f"is not whole JSON: {exc}")
    if not isinstance(value, dict):
        return Result(wrong=f"is a {type(value).__name__}; it must be an object with status and response")
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
    exit_code: int | None,
    result: Result | None,
    *,
    reason: EndReason = EndReason.EXITED,
    detail: str = "",
    tail: str = "",
) -> AgentSeen:
    """How an agent ended, by its exit code and its result. The exit code counts more than the status in the result."""
    if detail and (reason is EndReason.OVERFULL or result is None or not result.error):
        result = replace(result or Result(), status="error", error=detail)
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


def _order(ground: Ground, task: str | None, variables: Mapping[str, str]) -> Order:
    spec, asked, runner = ground.spec, ground.asked, ground.site.agent_runner
    env = ground.variables(for_agent(spec), runner)
    if task is not None:
        env["TASK"] = task
    if asked.is_builtin:
        env = {**_keys(spec, ground.site.environ), **env, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
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
    errors = ground.mask.text(ending.last_lines())
    # A process that was killed has no exit code of its own, whatever the runner reports.
    code = ending.exit_code if ending.exited else None
    return ended(code, _result(ground, ending), reason=reason, detail=ground.mask.text(detail), tail=errors)


def _result(ground: Ground, ending: Ending) -> Result | None:
    """The file if it is a whole result, else that of the output, else the one that is wrong."""
    content = ground.folder.left_in_ipc(RESULT, MOST_BYTES)
    filed = parsed(content) if content is not None else None
    if filed is not None and not filed.wrong:
        return filed
    printed = from_output(ending.stdout.text)
    return printed if printed is not None and (filed is None or not printed.wrong) else filed


def _read(value: Mapping[str, Any]) -> Result:
    status = value.get("status")
    if status not in _STATUSES:
        return Result(wrong=f"has the status {status!r}; known: {', '.join(_STATUSES)}")
    response, error = value.get("response"), value.get("error")
    for key, text in (("response", response), ("error", error)):
        if not isinstance(text, str | None):
            return Result(wrong=f"has a {key} that is not a text")
    if status == "error" and not error:
        error = response or "the agent reports a failure without a reason"
    return Result(
        status=status, response=response or "", error=error or "", metrics=_metrics(value.get("metrics"))
    )


def _metrics(value: Any) -> dict[str, int]:
    """Plausible counts: none above a limit, and all zero where one is negative."""
    counts = {key: mapping(value).get(key) for key in _METRICS}
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
    return parsed(inner.strip()) if closed else Result(wrong=f"begins with {BEGIN} and has no {END}")


def _one_result(context: HookContext, outcome: Outcome) -> HookResult:
    """The outcome of all hooks as one result."""
    if outcome.answered:
        return HookResult.answer(plain(outcome.output))
    is_start = isinstance(context.point, Point) and context.point.is_start
    changes = outcome.changed and outcome.action in (HookAction.CONTINUE, HookAction.ALLOW, HookAction.ASK)
    return HookResult(
        action=outcome.action,
        error_message=outcome.reason or None,
        modified_payload=plain(outcome.payload) if changes and is_start else None,
        modified_output=plain(outcome.output) if changes and not is_start else None,
        replace=True,
        tell_model="\n".join(outcome.tell_model) or None,
        tell_user="\n".join(outcome.tell_user) or None,
    )


def _bound(ipc: Path) -> socket.socket:
    try:
        # A preRun hook may have left something of that name.
        (ipc / SOCKET).unlink(missing_ok=True)
        return at_socket(ipc, socket.socket.bind)
    except OSError as exc:
        raise AgentFailed(
            f"the agent could not ask the hooks out here: /ipc/{SOCKET}: {exc.strerror}"
        ) from exc
