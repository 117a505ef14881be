"""Tools: functions that a model may call. `@tool` makes one; its parameters become a JSON Schema.

The ready tools are bound to the run's workspace folder: bash, read_file, write_file, edit_file, list_files.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, get_type_hints, overload

from hookline.agent.models import ToolSpec, faults
from hookline.claude.tools import kind_of
from hookline.engine.context import WorkflowContext
from hookline.engine.hook import is_limit, seconds
from hookline.engine.threads import Threads
from hookline.errors import AgentFailed, UsageError, meant, refuse_unknown
from hookline.matcher import TOOL_KINDS
from hookline.secrets import handed_on

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hookline.runners import Runner

_threads = Threads(cap=256)
APPROVALS = ("none", "always")
BASH_SECONDS = 120.0
OUTPUT_BYTES = 64 * 1024
READ_CHARACTERS = 1024 * 1024
LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `body` takes the execution's context and the arguments after the hooks."""

    id: str
    description: str
    parameters: Mapping[str, Any]
    body: Callable[[WorkflowContext, dict[str, Any]], Awaitable[Any]]
    kind: str = "other"
    approval: str = "none"
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"a tool's id must be a non-empty text, not {self.id!r}")
        for key, known in (("kind", TOOL_KINDS), ("approval", APPROVALS)):  # misspelt, a guard would be off
            if (word := getattr(self, key)) not in known:
                raise UsageError(f"tool {self.id!r}: {key} is {word!r}{meant(str(word), known)}")
        seconds(self.timeout, f"tool {self.id!r}: ")

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.id, description=self.description, parameters=self.parameters)

    async def __call__(self, ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        async with asyncio.timeout(self.timeout) as limit:
            try:
                return await self.body(ctx, arguments)
            except asyncio.CancelledError:
                if limit.expired():
                    raise ToolTimedOut(f"{self.id} ran past its limit of {self.timeout:g} s") from None
                raise


class ToolTimedOut(AgentFailed):
    """A tool ran past its own limit."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    kind: str | None = None,
    approval: str = "none",
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    kind: str | None = None,
    approval: str = "none",
    timeout: float | None = None,
    **unknown: Any,
) -> Any:
    """Makes a tool of a function: `(ctx)`, `(ctx, input: SomeModel)`, or plain typed parameters.

    A first parameter annotated `WorkflowContext`, or named `ctx`, receives the execution's context.
    Without a `kind` it has that of the tool that clients call by its name, else `other`.
    `approval="always"` asks a person before each call, unless a hook allows it.
    """
    refuse_unknown("@tool", unknown, tool)

    def make(target: Callable[..., Any]) -> Tool:
        name = getattr(target, "__name__", None)
        if name is None:
            raise UsageError(f"tool {target!r} has no name and no parameters of its own; give a function")
        signature = _signature(target)
        parameters = signature.model.model_json_schema()
        parameters.pop("title", None)
        return Tool(
            id=id or name,
            description=description or inspect.getdoc(target) or "",
            parameters=parameters,
            body=_body(target, signature),
            kind=kind or kind_of(id or name),
            approval=approval,
            timeout=timeout,
        )

    return make if function is None else make(function)


class _ToolSignature(NamedTuple):
    """The parameters of a function: with or without the context, and single values by `names`, or one whole model."""

    takes_context: bool
    model: type[BaseModel]
    names: Mapping[str, str] | None = None


def _signature(function: Callable[..., Any]) -> _ToolSignature:
    from pydantic import BaseModel, ConfigDict, Field, create_model

    where = f"tool {getattr(function, '__name__', function)!r}"
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise UsageError(f"{where}: an annotation cannot be read: {exc}") from exc
    params = list(inspect.signature(function).parameters.values())
    for param in params:
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY):
            raise UsageError(f"{where}: parameter {param} cannot be described to a model; name each one")
    takes_context = bool(params) and (params[0].name == "ctx" or hints.get(params[0].name) is WorkflowContext)
    rest = params[1:] if takes_context else params
    if len(rest) == 1:
        hint = hints.get(rest[0].name)
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            return _ToolSignature(takes_context, hint)
    # Own field names: a parameter may be called `schema` or `_x`, which a model's field may not.
    names = {param.name: f"field_{index}" for index, param in enumerate(rest)}
    fields: dict[str, Any] = {
        names[param.name]: (
            hints.get(param.name, Any),
            Field(... if param.default is param.empty else param.default, alias=param.name, title=param.name),
        )
        for param in rest
    }
    model = create_model(
        f"{getattr(function, '__name__', 'tool')}_input", __config__=ConfigDict(extra="ignore"), **fields
    )
    return _ToolSignature(takes_context, model, names)


def _body(
    function: Callable[..., Any], signature: _ToolSignature
) -> Callable[[WorkflowContext, dict[str, Any]], Awaitable[Any]]:
    is_async = inspect.iscoroutinefunction(function)
    takes_context, model, names = signature

    async def body(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        from pydantic import ValidationError

        try:
            checked = model.model_validate(arguments)
        except ValidationError as exc:
            raise AgentFailed(f"the arguments do not fit: {faults(exc)}") from None
        named = {name: getattr(checked, field) for name, field in (names or {}).items()}
        call = partial(function, *([ctx] if takes_context else []), **named)
        if names is None:
            call = partial(call, checked)
        if is_async:
            return await call()
        value = await _threads.call(call, timeout=None)
        return await value if inspect.isawaitable(value) else value

    return body


def ready_tool(name: str) -> Tool:
    """The ready tool of that name."""
    if name not in READY:
        raise UsageError(f"there is no ready tool {name!r}{meant(name, READY)}")
    return READY[name]


def bash_tool(
    runner: Runner | None = None, env: Mapping[str, str] | None = None, *, handed: str | Iterable[str] = ()
) -> Tool:
    """The tool `bash`, on that runner and with that environment.

    Without a runner each call has one of its own, and ends what its command started; without an environment it has ours.
    Of the keys of model providers and trackers it has only those in `handed`; all if that is `inherit`.
    """

    async def body(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        # Loaded when a command is run: an agent without this tool starts without them.
        from shutil import which

        from hookline.runners import Order
        from hookline.runners.local import LocalRunner

        command, limit = _text(arguments, "command"), arguments.get("timeout", BASH_SECONDS)
        if not is_limit(limit):
            raise AgentFailed(f"timeout is {limit!r}; give seconds greater than 0")
        variables = handed_on(os.environ if env is None else env, handed)
        # Many images have no bash.
        shell = "bash" if which("bash", path=variables.get("PATH")) else "sh"
        order = Order(
            # With its name given, the runner does not look for missing scripts: a model is told the shell's own words.
            argv=(shell, "-c", f"{_set_by_hooks(ctx)}{command}", shell),
            cwd=_folder(ctx),
            env=variables,
            timeout=float(limit),
            output_cap=OUTPUT_BYTES,
            merge_stderr=True,
        )
        used = LocalRunner(cap=1) if runner is None else runner
        try:
            ending = await used.run(order)
        finally:
            if runner is None:
                await used.close()
        if ending.passed_limit:
            raise AgentFailed(
                f"the command ran past {limit:g} s and was ended; it had said: {ending.stdout.text}"
            )
        if ending.signal is None and ending.exit_code is None:
            raise AgentFailed(f"the command {ending.in_words()}")
        code = ending.exit_code if ending.signal is None else -ending.signal
        return {"exit_code": code, "output": ending.stdout.text}

    return Tool(
        id="bash",
        description="Run a bash command in the workspace; gives its exit code and its output.",
        parameters=schema_of(
            ("command",),
            command=("string", "the command"),
            timeout=("number", f"seconds, {BASH_SECONDS:g} if not given"),
        ),
        body=body,
        kind="shell",
    )


def _set_by_hooks(ctx: WorkflowContext) -> str:
    """The line that takes over what hooks wrote to CLAUDE_ENV_FILE; empty if none did."""
    path = ctx.env_file
    return f". {shlex.quote(path)}\n" if path and os.path.isfile(path) and os.path.getsize(path) else ""


def _read_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> str:
    """The lines from `offset` on, up to READ_CHARACTERS; a longer line counts as several."""
    path = _inside(ctx, _text(arguments, "path"))
    first, count = max(int(arguments.get("offset") or 1), 1), arguments.get("limit")
    stop = first - 1 + max(int(count), 0) if count else None
    text = ""
    with _opened(path, "replace") as file:
        lines = iter(partial(file.readline, READ_CHARACTERS), "")
        for number, line in enumerate(islice(lines, first - 1, stop), first):
            text += line
            if len(text) > READ_CHARACTERS:
                size = os.fstat(file.fileno()).st_size
                told = f"... cut in line {number}; the file has {size} bytes; read on with offset"
                return f"{text[:READ_CHARACTERS]}\n{told}"
    return text


def _write_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> str:
    path, content = _inside(ctx, _text(arguments, "path")), _text(arguments, "content")
    _write(path, content)
    return f"wrote {len(content.encode())} bytes to {arguments['path']}"


def _edit_file(ctx: WorkflowContext, arguments: dict[str, Any]) -> str:
    path, old = _inside(ctx, _text(arguments, "path")), _text(arguments, "old")
    new, name = _text(arguments, "new"), arguments["path"]
    try:
        with _opened(path, "strict") as file:
            text = file.read()
    except UnicodeDecodeError as exc:
        raise AgentFailed(f"{path.name!r} is not UTF-8 text: {exc}") from None
    count = text.count(old) if old else 0
    if count != 1:
        raise AgentFailed(f"`old` stands {count} times in {name}; it must stand exactly once")
    _write(path, text.replace(old, new))
    return f"edited {name}"


def _list_files(ctx: WorkflowContext, arguments: dict[str, Any]) -> list[str]:
    root, folder = _inside(ctx, "."), _inside(ctx, str(arguments.get("path") or "."))
    glob = str(arguments.get("glob") or "*")
    if ".." in Path(glob).parts or Path(glob).is_absolute():
        raise AgentFailed(f"glob {glob!r} leads out of the folder")
    if not folder.is_dir():
        raise AgentFailed(f"there is no folder {folder.name!r} there")
    # A pattern may go through a link that leads out.
    found = sorted(path for path in folder.glob(glob) if path.parent.resolve().is_relative_to(root))
    names = [f"{path.relative_to(root)}{'/' if path.is_dir() else ''}" for path in found[:LISTED]]
    return names if len(found) <= LISTED else [*names, f"... {len(found) - LISTED} more"]


def schema_of(required: tuple[str, ...], **properties: tuple[str, str]) -> dict[str, Any]:
    """The JSON Schema of an object, by type and description of each property."""
    return {
        "type": "object",
        "properties": {
            name: {"type": kind, "description": text} for name, (kind, text) in properties.items()
        },
        "required": list(required),
    }


_PATH = ("string", "a path inside the workspace")

READY: Mapping[str, Tool] = {
    made.id: made
    for made in (
        bash_tool(),
        Tool(
            id="read_file",
            description="Read a text file of the workspace.",
            parameters=schema_of(
                ("path",),
                path=_PATH,
                offset=("integer", "first line, from 1"),
                limit=("integer", "how many lines"),
            ),
            body=partial(asyncio.to_thread, _read_file),
            kind="read",
        ),
        Tool(
            id="write_file",
            description="Write a text file of the workspace, making folders as needed.",
            parameters=schema_of(
                ("path", "content"), path=_PATH, content=("string", "the whole new content")
            ),
            body=partial(asyncio.to_thread, _write_file),
            kind="write",
        ),
        Tool(
            id="edit_file",
            description="Replace one passage of a text file; it must stand there exactly once.",
            parameters=schema_of(
                ("path", "old", "new"),
                path=_PATH,
                old=("string", "the passage as it stands"),
                new=("string", "what takes its place"),
            ),
            body=partial(asyncio.to_thread, _edit_file),
            kind="write",
        ),
        Tool(
            id="list_files",
            description="List files of the workspace.",
            parameters=schema_of((), path=_PATH, glob=("string", "a pattern such as **/*.py")),
            body=partial(asyncio.to_thread, _list_files),
            kind="search",
        ),
    )
}


def _folder(ctx: WorkflowContext) -> str:
    return ctx.workspace or os.getcwd()


def _inside(ctx: WorkflowContext, name: str) -> Path:
    root = Path(_folder(ctx)).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise AgentFailed(f"path {name!r} leads out of the workspace")
    return path


def _opened(path: Path, errors: str) -> TextIO:
    if not path.is_file():
        raise AgentFailed(f"there is no file {path.name!r} there")
    # Line ends as they are: what is read is what `old` of an edit is compared with.
    return path.open(encoding="utf-8", errors=errors, newline="")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="")


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise AgentFailed(f"argument {name!r} must be a string, not {type(value).__name__}")
    return value
