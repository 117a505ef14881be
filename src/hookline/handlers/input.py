"""What every hook outside this process is given: the `HOOKLINE_*` variables and the context as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, cast

from hookline.engine.context import HookContext, WorkflowContext
from hookline.errors import HookBroke
from hookline.runners import Ending

_LONGEST = 4096
"""Bytes of one variable. A name that a model made up must not be able to keep a guard from starting."""


def environment(
    env: Mapping[str, str] | None, ctx: WorkflowContext | None, hook_context: HookContext, cwd: str | None
) -> dict[str, str]:
    """The whole environment of a process: the one given (None: ours) and the facts; what is not known is not set."""
    facts = hook_context.facts
    known = {
        "HOOKLINE_POINT": facts.point,
        "HOOKLINE_RUN_ID": facts.run_id,
        "HOOKLINE_CALL_ID": facts.call_id,
        "HOOKLINE_ATTEMPT": facts.attempt,
        "HOOKLINE_AGENT": facts.agent,
        "HOOKLINE_TOOL": facts.current_tool,
        "HOOKLINE_TOOL_KIND": facts.tool_kind,
        "HOOKLINE_SESSION_ID": facts.session_id,
        "HOOKLINE_CWD": folder(cwd, ctx),
        "HOOKLINE_STATUS": facts.status,
    }
    whole = dict(os.environ if env is None else env)
    for name, value in known.items():
        whole.pop(name, None)
        if value is not None and value != "":
            whole[name] = _variable(f"{value}")
    return whole


def folder(cwd: str | None, ctx: WorkflowContext | None) -> str:
    """Where a hook's process stands: where it was told to, else in the workspace, else where we are."""
    return cwd or (ctx.workspace if ctx is not None and ctx.workspace else os.getcwd())


def context_json(hook_context: HookContext) -> bytes:
    """The context as strict JSON; what JSON has no word for is null (NaN) or its text."""
    shown = hook_context.to_dict()
    try:
        return json.dumps(shown, allow_nan=False, default=str).encode()
    except ValueError:
        return json.dumps(_finite(shown), default=str).encode()


def broke(ending: Ending, timeout: float | None) -> HookBroke | None:
    """The trouble of a process that has no exit code of its own, which is no matter of any protocol."""
    if ending.exited:
        return None
    kind = "not_started" if ending.not_started is not None else "timed_out" if ending.passed_limit else "exit"
    return HookBroke(with_last_lines(ending.in_words(timeout), ending), kind=kind)


def with_last_lines(message: str, ending: Ending) -> str:
    lines = ending.last_lines()
    return f"{message}: {lines}" if lines else message


def _variable(value: str) -> str:
    text = value.replace("\0", "").encode("utf-8", "replace")[:_LONGEST]
    return text.decode("utf-8", "ignore")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value
