"""no_writes_outside: refuses writes outside the workspace, after resolving `..`, `~`, links and `cd`.

For tools that write files, also those of MCP by their name, the path is resolved and compared. For shell text it is best effort: a path in the text is
checked, a path that is only known at run time passes. Only a sandbox confines a shell.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.plain import mapping
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import FOLDERS, StepBudget, TooMuch, asked
from hookline.guards.placed import command_targets, linked, patched_files, shell_commands, through_links


def no_writes_outside_of(
    *roots: str | os.PathLike[str], temporary: bool | None = None
) -> Callable[[WorkflowContext | None, HookContext], HookResult]:
    """`no_writes_outside` for the folders you name; the workspace only counts if you name none.

    `temporary`: True if the system's temporary folder may be written to. Without it, that is so where no folder is
    named, and the workspace does not lie in the temporary folder itself.
    """

    # Not inline: resolving paths reads the file system, which may be slow.
    @hook(on="tool.start", match="kind:write|shell|mcp|other", name="no_writes_outside")
    def guard(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
        """Blocks a write to a path outside the run's workspace."""
        base = workspace_of(ctx)
        # An agent can change the folder of its events by `cd`; the project's stays what it is.
        project = (ctx.project if ctx is not None else None) or base
        named = [os.path.join(project, os.path.expanduser(root)) for root in roots]
        real = [os.path.realpath(root) for root in named or [project]]
        scratch = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")
        if temporary or (temporary is None and not named and not is_in(real[0], scratch)):
            real.append(scratch)
        try:
            paths = _targets(hook_context, base)
        except TooMuch as exc:
            return HookResult.block(f"no writes outside: {exc}")
        for path in paths:
            reason = _outside(path, base, real)
            if reason is not None:
                return HookResult.block(f"no writes outside: {reason}")
        return CONTINUE

    return guard


no_writes_outside = no_writes_outside_of()


def _targets(hook_context: HookContext, base: str) -> list[str]:
    """The paths that a call writes to."""
    payload, kind = hook_context.current_payload, hook_context.tool_kind
    if kind == "shell" or (kind != "write" and runs_commands(payload)):
        folder, work = folder_of(payload, base), StepBudget()
        return [path for command in asked(payload) for path in shell_targets(command, folder, work)]
    return list(changed_paths(hook_context))


_CHANGES = lazy_pattern(
    r"write|edit|creat|move|delet|remov|renam|patch|updat|append|replac|save|put|copy|insert|apply|store|download|export|extract",
    re.IGNORECASE,
)
_MOVES = lazy_pattern(r"move|rename", re.IGNORECASE)


def changed_paths(hook_context: HookContext) -> Iterator[str]:
    """The paths in the input of a tool that writes, by its kind or by its name; none for any other."""
    # Of a tool of MCP, not what its server is called.
    name = (hook_context.current_tool or "").rpartition("__")[2]
    payload = hook_context.current_payload
    if hook_context.tool_kind == "write" or (hook_context.tool_kind != "shell" and _CHANGES.search(name)):
        yield from written_paths(payload)
        if _MOVES.search(name):
            yield from (value for value in mapping(payload).values() if isinstance(value, str))


def runs_commands(payload: Any) -> bool:
    """True for the input of a tool that runs a command, whatever its kind."""
    return any(mapping(payload).get(key) for key in ("command", "cmd", "script"))


def workspace_of(ctx: WorkflowContext | None) -> str:
    """The absolute folder of a run; the current one if it has none."""
    return os.path.abspath((ctx.workspace if ctx is not None else None) or "")


def folder_of(payload: Any, base: str) -> str:
    """The folder that a shell call names, else the base."""
    given = mapping(payload)
    named = next((given[key] for key in FOLDERS if isinstance(given.get(key), str)), "")
    return os.path.join(base, os.path.expanduser(named)) if named else base


def _outside(path: str, base: str, roots: Sequence[str]) -> str | None:
    try:
        real = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
    except ValueError as exc:
        return f"{path!r} is not a path ({exc})"
    if any(is_in(real, root) for root in roots):
        return None
    shown = path if path == real else f"{path} (which is {real})"
    return f"{shown} is not in {' or '.join(roots)}"


def is_in(path: str, folder: str) -> bool:
    """True if a path is a folder or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


_A_PATH = lazy_pattern(
    r"(?:^|_)(?:path|file|filename|filepath|dest|destination|dst|target|folder|directory|dir|uri|output|out)s?(?:$|_)"
)
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_PATH = frozenset({"file_text", "file_content", "file_contents", "file_type", "file_size", "path_type"})
_PATCHES = frozenset({"input", "patch", "diff", "command"})


def written_paths(payload: Any) -> Iterator[str]:
    """The paths in the input of a tool that writes: under keys named like a path, and inside patches."""
    if isinstance(payload, Mapping):
        for key, value in cast("Mapping[Any, Any]", payload).items():
            name = _CAMEL.sub("_", str(key)).lower()
            yield from _values(name, value)
    elif isinstance(payload, list):
        for item in cast("list[Any]", payload):
            yield from written_paths(item)


def _values(name: str, value: Any) -> Iterator[str]:
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            yield from written_paths(item)
        elif name in _PATCHES:
            yield from patched_files(item)
        elif item and _A_PATH.search(name) and name not in _NO_PATH and "\n" not in item:
            yield unquote(urlsplit(item).path) if item.lower().startswith("file:") else item


def shell_targets(command: str | Sequence[str], base: str, work: StepBudget | None = None) -> list[str]:
    """The paths a shell text or an argument list visibly writes to, absolute or relative to `base`.

    Raises TooMuch if the text is too long to be read in full.
    """
    found: list[str] = []
    links: dict[str, str] = {}
    for each in shell_commands(command, base, work):
        for path in command_targets(each):
            found += [path, *through_links(path, links)]
        links.update(linked(each))
    return found
