"""End hooks of a run whose process is gone, each made again and called in a process of its own.

Its code may hang, end its process or be gone; whoever recovers the run has a limit for it, and is told. As a program
this module makes the hooks of a task on standard input, calls one of them, and says what it answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Hook, HookDeclaration, Mode, OnError
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import HookAction, Point
from hookline.engine.record import Called
from hookline.engine.result import HookResult
from hookline.errors import FileError, HookBroke, HooklineError, UsageError
from hookline.files import fix, fixed
from hookline.hookfile.importer import imported
from hookline.hookfile.loader import ApprovedLoader
from hookline.journal.snapshot import ENDS, Snapshot
from hookline.runners import Ending, Order, Runner
from hookline.runners.local import LocalRunner
from hookline.runners.places import runner_again

LOAD_LIMIT = 10.0
"""Seconds that the files of a run's end hooks may take to load."""
UNLIMITED = 60.0
"""Seconds for a hook that has no limit of its own: a start does not wait for ever for another run's hook."""
_GRACE = 5.0


async def hooks_again(kept: Snapshot) -> list[Hook]:
    """The end hooks of a run. A HooklineError says why they cannot be made now."""
    known = [each for each in kept.hooks if each["how"] is not None]
    if known:
        ending = await _ran(_order(kept, known, LOAD_LIMIT + _GRACE))
        said = _said(ending)
        if said is None:
            raise UsageError(f"the code of its end hooks {_in_words(ending)}")
        if "problem" in said:
            raise UsageError(said["problem"])
    return [_proxy(each, kept) for each in known]


def _proxy(entry: Mapping[str, Any], kept: Snapshot) -> Hook:
    limit = entry["timeout"] or UNLIMITED

    async def handler(_ctx: WorkflowContext | None, context: HookContext, /) -> HookResult:
        order = _order(kept, [entry], LOAD_LIMIT + limit + _GRACE, context)
        ending = await _ran(order)
        said = _said(ending)
        if said is None or "problem" in said:
            raise HookBroke((said or {}).get("problem") or _in_words(ending), kind="not_started")
        if said.get("error"):
            raise HookBroke(said["error"], kind=said["error_kind"])
        return HookResult(
            action=HookAction(said.get("action", HookAction.CONTINUE)),
            error_message=said.get("reason"),
            modified_output=said.get("changed"),
            tell_user=said.get("tell_user"),
        )

    return Hook(
        name=entry["name"],
        points=frozenset(map(Point, entry["points"])),
        handler=handler,
        kind=entry["kind"],
        timeout=entry["timeout"],
        on_error=OnError(entry["on_error"]) if entry["on_error"] else None,
        mode=Mode(entry["mode"]),
        source=entry["source"],
        limits_itself=True,
    )


async def _ran(order: Order) -> Ending:
    runner = LocalRunner()
    try:
        return await runner.run(order)
    finally:
        await runner.close()


def _order(
    kept: Snapshot, hooks: Sequence[Mapping[str, Any]], limit: float, context: HookContext | None = None
) -> Order:
    if not os.path.isdir(kept.cwd):
        raise UsageError(f"the folder that it was started in is gone: {kept.cwd}")
    task = {
        "hooks": hooks,
        "modules": kept.modules,
        "contents": {name: body.decode("latin-1") for name, body in kept.contents.items()},
        "workspace": kept.workspace,
        "limit": LOAD_LIMIT,
        "context": context.to_dict() if context is not None else None,
    }
    return Order(
        argv=(sys.executable, "-P", "-m", "hookline.hookfile.ends"),
        cwd=kept.cwd,
        env=kept.environment(os.environ),
        stdin=json.dumps(task, default=str).encode(),
        timeout=limit,
    )


def _said(ending: Ending) -> dict[str, Any] | None:
    """The report of the process; None if it ended without one."""
    try:
        return json.loads(ending.stdout.content) if ending.exited else None
    except ValueError:
        return None


def _in_words(ending: Ending) -> str:
    if ending.signal == signal.SIGALRM:
        return f"did not load within {LOAD_LIMIT:g} s"
    return f"ended the process that loads it: it {ending.in_words()}"


def main() -> None:
    task = json.load(sys.stdin.buffer)
    report = os.dup(1)
    os.set_inheritable(report, False)
    os.dup2(2, 1)  # what the hooks print is no report
    text = json.dumps(_answer(task), default=str).encode()
    while text:
        text = text[os.write(report, text) :]
    if _copies.cache_info().currsize:
        _copies().cleanup()
    os._exit(0)  # threads that they left do not hold up the next run


def _answer(task: Mapping[str, Any]) -> Mapping[str, Any]:
    # By default the signal ends the process, whatever that does meanwhile.
    signal.setitimer(signal.ITIMER_REAL, task["limit"])
    for name, text in task["contents"].items():
        fix(name, text.encode("latin-1"))
    sys.meta_path.insert(0, _Modules(task["modules"]))
    try:
        made = [_made(each) for each in task["hooks"]]
    except HooklineError as exc:
        return {"problem": str(exc)}
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {} if task["context"] is None else asyncio.run(_called(*made[0], task))


async def _called(hook: Hook, runner: Runner, task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of the hook."""
    context = HookContext.from_dict(task["context"])
    facts = context.facts
    facts.workflow = WorkflowContext(
        workflow_id=facts.workflow_id,
        execution_id=facts.run_id,
        session_id=facts.session_id,
        user_id=facts.user_id,
        root_execution_id=facts.run_id,
        root_workflow_id=facts.workflow_id,
        workspace=task["workspace"],
        agent_id=facts.agent,
    )
    calls: list[Any] = []
    try:
        await Pipeline((hook,), Recorder(None, [calls.append])).fire(context)
    finally:
        await runner.close()
    found = next((each for each in calls if isinstance(each, Called)), None)
    return {} if found is None else found._asdict()


def _made(entry: Mapping[str, Any]) -> tuple[Hook, Runner]:
    how = entry["how"]
    if "agent" in how:
        return _of_agent(entry["name"], how["agent"], how["index"]), LocalRunner()
    from hookline.hookfile.attach import live

    given: dict[str, Any] = {
        **how["declared"],
        "points": tuple(map(Point, entry["points"])),
        "on_error": entry["on_error"] and OnError(entry["on_error"]),
        "mode": Mode.ENFORCE,
    }
    declared = HookDeclaration(**given)
    runner = runner_again(how["place"])
    for word, file in how.get("scripts", {}).items():
        kept = fixed(file)
        if kept is not None and kept != _content(file):
            declared = replace(declared, params=_with_copy(declared, word, file, kept, how["place"]))
    return live(declared, runner), runner


def _content(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def _with_copy(declared: HookDeclaration, word: str, file: str, kept: bytes, place: Any) -> Mapping[str, Any]:
    """The parameters of a process with the copy that was kept of its script, which is another one now."""
    params = declared.params
    shown = word if declared.kind != "shell" else rf"(?<![\w./'\"-]){re.escape(word)}(?![\w./'\"-])"
    is_named = re.search(shown, params["script"]) if declared.kind == "shell" else word in params["argv"]
    if place is not None or not is_named:
        raise FileError("it is not what it was when the run began; put it back", file=file)
    copy = Path(_copies().name, f"{len(os.listdir(_copies().name))}-{os.path.basename(file)}")
    copy.touch(0o700)
    copy.write_bytes(kept)
    if declared.kind == "shell":
        return {**params, "script": re.sub(shown, lambda _: shlex.quote(str(copy)), params["script"])}
    return {**params, "argv": [str(copy) if each == word else each for each in params["argv"]]}


@cache
def _copies() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hookline-ends-")


def _of_agent(name: str, source: str, index: int) -> Hook:
    """The end hook at this place among those of an agent."""
    module, where, called = imported(source)
    agent = getattr(module, called, None)
    hooks = [each for each in agent.hooks() if each.points & ENDS] if agent is not None else []
    if index >= len(hooks) or hooks[index].name != name:
        raise FileError(f"{called or 'the agent'} has no end hook {name!r} at its place any more", file=where)
    return hooks[index]


class _Modules(MetaPathFinder):
    """Finds modules that were kept, by their names."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ApprovedLoader(fullname, file))


if __name__ == "__main__":
    main()
