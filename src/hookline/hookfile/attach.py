"""Hook files made live: what a file declares, with the handler of each kind and the runner its processes need.

`hookline check` loads this to look at a file, so what only some kinds of hooks need is imported where it is used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.claude.hooks import (
    argv_of,
    missing_command,
    own_result_of,
    process_of,
    result_of,
    script_fault,
    when_of,
    when_text,
)
from hookline.claude.matchers import denied_by, selector
from hookline.claude.payload import own_stdin_of, stdin_of
from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import (
    WITHHOLDS,
    Handler,
    Hook,
    HookDeclaration,
    Mode,
    OnError,
    annotation_fault,
    options_of,
)
from hookline.engine.plain import plain
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import FileError, HookBroke, UsageError
from hookline.handlers.process import container_handler
from hookline.handlers.python import python_hook
from hookline.hookfile import read as native
from hookline.hookfile.importer import function_of, imported, is_ready_guard, look_at
from hookline.hookfile.keys import foreign_point
from hookline.hookfile.sources import is_machine
from hookline.matcher import matcher
from hookline.runners import Runner
from hookline.secrets import only
from hookline.source import SUFFIXES, text_of
from hookline.terminal import Problem, problems_of, refuse_mistakes, warn

if TYPE_CHECKING:
    from hookline.handlers.background import Background

_API_VERSION = re.compile(r"""^\s*["']?apiVersion["']?:\s*["']?([^\s/"']*)""", re.MULTILINE)
_SPEC = re.compile(r"^spec:", re.MULTILINE)
_OF_AGENTS = ("kagent.dev", "sympozium.ai")


class Attached(NamedTuple):
    """The hooks of a file, what is wrong with the entries that are not among them, and what is only odd.

    `doubts` are about hooks that are right and would still not guard anything here, as far as can be seen.
    `declared` is what the hooks were made of, where that is data.
    """

    hooks: list[Hook]
    problems: Sequence[FileError] = ()
    notes: Sequence[FileError] = ()
    doubts: Sequence[FileError] = ()
    declared: Sequence[HookDeclaration] = ()

    def all_problems(self, file: str) -> list[Problem]:
        return problems_of([*self.problems, *self.doubts], self.notes, file)


def load_hooks(target: str, runner: Runner | None = None, *, imports: bool = True) -> Attached:
    """The hooks of a `hookline.yaml`, a `.claude/settings.json`, or Python functions with `@hook(on=...)`.

    Without a runner they are only looked at; without `imports` nothing of a YAML or JSON file is imported or started."""
    if runner is None:
        from hookline.runners.process import ProcessRunner  # the one that starts fastest

        runner = ProcessRunner()
    path = Path(target)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise FileError("there is no such file", file=path)
        if _is_agent(text_of(path)):
            raise FileError(
                f"this is an agent with its own hooks (hookline run {target}); --hooks takes a"
                " hookline.yaml, a .claude/settings.json or a Python file",
                file=path,
            )
        found = attached(path, runner, imports=imports)
        return found._replace(hooks=[replace(each, last_word=is_machine(path)) for each in found.hooks])
    (module, where, name), listed = imported(target), list[Hook]()
    for key, value in vars(module).items():
        if callable(value) and options_of(value).on and (not name or key == name):
            made = python_hook(value)
            _refuse_unknown_events(made)
            defaults = {**native.FOREIGN, **(made.defaults or {})}
            again = partial(_again, _declared(made, where, key), runner)
            listed.append(replace(made, defaults=defaults, again=again))
    if not listed:
        which = f"no hook {name!r}" if name else "no hook"
        raise FileError(f"there is {which} with points in it; write @hook(on='tool.start')", file=where)
    return Attached(listed)


def _refuse_unknown_events(hook: Hook) -> None:
    try:
        for point in hook.points - set(Point):
            foreign_point(point)
    except UsageError as exc:
        raise FileError.at(hook.source, f"hook {hook.name}: {exc}") from exc


def _is_agent(text: str) -> bool:
    """True for a manifest of an agent, and for its `spec` alone, as documents show it."""
    groups = _API_VERSION.findall(text)
    return any(group in _OF_AGENTS for group in groups) if groups else _SPEC.search(text) is not None


def hooks_of(files: Iterable[str], runner: Runner) -> list[Hook]:
    """The hooks of every file. A wrong entry of ours is a guard that would be off, so nothing runs then; of a
    foreign file only that entry is dropped, as its own tool would, and it is told, unless the whole file is wrong."""
    found: list[Hook] = []
    for file in files:
        loaded = load_hooks(file, runner)
        for each in (*loaded.problems, *loaded.notes):
            warn(str(each))
        foreign = file.endswith(".json")
        refuse_mistakes(file, sum(not foreign or "." not in (each.key or "") for each in loaded.problems))
        found += loaded.hooks
    once, twins = each_once(found)
    if twins:
        warn(f"in two files, and run once: {', '.join(twins)}")
    for number, hook in enumerate(once):
        twin = next((other for other in once[:number] if other.name == hook.name), None)
        if twin is not None:
            warn(f"hook {hook.name} is in {twin.source} and in {hook.source}; it runs twice")
    return once


def each_once(hooks: Iterable[Hook]) -> tuple[list[Hook], list[str]]:
    """The hooks without those that are the same as an earlier one, whose source counts for more; and who they were."""
    found: dict[object, Hook] = {}
    twins: list[str] = []
    for hook in hooks:
        first = found.setdefault(hook.same or id(hook), hook)
        if first is not hook:
            found[hook.same] = _together(first, hook)
            twins.append(f"{first.name} ({first.source}, {hook.source})")
    return list(found.values()), twins


def _together(first: Hook, other: Hook) -> Hook:
    """The same hook of two files as one: for all that either is for, and as strict as the stricter."""
    strictest = OnError.BLOCK if OnError.BLOCK in (first.on_error, other.on_error) else first.on_error
    if first.match_text == other.match_text:
        return replace(first, on_error=strictest)
    matchers = [hook.match for hook in (first, other) if hook.match is not None]

    def match(facts: Facts) -> bool:
        return any(each(facts) for each in matchers)

    return replace(first, match=match, match_text=None, on_error=strictest)


def attached(file: Path, runner: Runner, *, imports: bool = True) -> Attached:
    """The hooks of a `hookline.yaml` or a `.claude/settings.json`."""
    if file.suffix == ".json":
        from hookline.claude import settings

        found = settings.declared(text_of(file), file)
    else:
        found = native.read(file)
    hooks: list[Hook] = []
    doubts: list[FileError] = []
    problems, notes = list(found.problems), list(found.notes)
    background = None
    if any(each.params.get("async") for each in found.hooks):
        from hookline.handlers.background import Background

        background = Background(runner)
    for each in found.hooks:
        try:
            made = live(each, runner) if imports else _looked_at(each, runner)
            if background is not None and each.params.get("async"):
                made = _async(made, each, runner, background)
            hooks.append(made)
            if told := made.doubt:
                doubts.append(
                    FileError.at(each.source, f"hook {each.name} {told}", code="declared-elsewhere")
                )
            if fault := annotation_fault(made.handler) if imports and each.kind == "python" else None:
                doubts.append(FileError.at(each.source, f"hook {each.name}: {fault}", code="wrong-function"))
        except FileError as exc:
            problems.append(exc)
        except UsageError as exc:
            problems.append(FileError.at(each.source, f"hook {each.name}: {exc}", code="wrong-function"))
        doubts += _doubts(each, imports=imports)
        if each.params.get("warm") == "fork" and runner.capabilities.isolates:
            told = f"hook {each.name}: warm: fork is for processes of this machine; in the {runner.capabilities.name}"
            notes.append(FileError.at(each.source, f"{told} each call starts cold", code="no-effect"))
    if background is not None:
        hooks.append(background.last_hook(file))
    return Attached(hooks, problems, notes, doubts, found.hooks)


def _doubts(declared: HookDeclaration, *, imports: bool) -> Iterator[FileError]:
    def doubt(message: str, code: str) -> FileError:
        return FileError.at(declared.source, f"hook {declared.name}: {message}", code=code)

    if declared.mode is not Mode.ENFORCE:
        yield doubt(f"its mode is {declared.mode}, so it refuses nothing", "not-enforced")
    if declared.kind == "image":
        import shutil  # slow to load, and few hooks are images

        if not any(map(shutil.which, ("podman", "docker"))):
            told = "it could not start: containers need podman or docker, and neither is on PATH"
            yield doubt(told, "missing-program")
    if declared.kind in native.PROCESSES:
        argv = argv_of(declared)
        cwd = declared.params.get("cwd") or declared.params.get("folder")
        absent = missing_command(argv, cwd)
        if absent is not None:
            yield doubt(f"it could not start: {absent}", "missing-program")
        # A shell that came with a file which is not approved is not started, not even to read.
        known = imports or "/" not in argv[0] or argv[0].startswith(("/bin/", "/usr/bin/"))
        fault = script_fault(argv) if known else None
        if fault is not None:
            yield doubt(fault, "shell-syntax")


def _looked_at(declared: HookDeclaration, runner: Runner) -> Hook:
    """A hook to be shown; of Python code that is not ours nothing is imported."""
    if declared.kind != "python" or is_ready_guard(declared.params):
        return live(declared, runner)
    look_at(declared)
    return replace(live(replace(declared, kind="unseen"), runner), kind="python")


def live(declared: HookDeclaration, runner: Runner) -> Hook:
    foreign = "event" in declared.params
    if declared.kind == "python":
        target = function_of(declared)
        own = options_of(target)
        # What the file says stands for what the function says of itself; where it is silent, that holds.
        options = replace(
            own,
            match=own.match if declared.match is None else None,
            timeout=declared.timeout,
            mode=declared.mode,
            name=declared.name,
        )
        made = python_hook(target, declared.points, options)
    else:
        made = Hook(
            name=declared.name,
            points=frozenset(declared.points),
            handler=_HANDLERS[declared.kind](declared, runner),
            kind=declared.kind,
            timeout=declared.timeout,
            mode=declared.mode,
            limits_itself=True,
        )
    if foreign:
        match = selector(declared)
    else:
        match = made.match if declared.match is None else matcher(declared.match)
    masks = WITHHOLDS if declared.changes == "output" else made.defaults or {}
    text = ", ".join(declared.match) if isinstance(declared.match, tuple) else declared.match
    return replace(
        made,
        match=match,
        match_text=text or made.match_text,
        when=when_of(declared),
        when_text=when_text(declared),
        on_error=declared.on_error,
        source=declared.source,
        defaults=_CLAUDE_DEFAULTS if foreign else {**native.DEFAULTS, **masks},
        same=_identity(declared),
        again=partial(_again, declared, runner),
    )


def _declared(made: Hook, where: str, key: str) -> HookDeclaration:
    """The declaration of a function with `@hook(on=...)`, as if a file had named it."""
    return HookDeclaration(
        name=made.name,
        points=tuple(made.points),
        kind="python",
        params={"file" if where.endswith(".py") else "module": where, "function": key},
        timeout=made.timeout,
        on_error=made.on_error,
        mode=made.mode,
        source=made.source,
    )


def _again(declared: HookDeclaration, runner: Runner) -> dict[str, Any]:
    from hookline.hookfile.scripts import scripts_of  # these not for `check`
    from hookline.runners.places import described

    folder = declared.params.get("folder")
    scripts = scripts_of(declared, folder) if folder and declared.kind != "python" else {}
    return {"declared": plain(declared), "place": described(runner), "scripts": scripts}


def _identity(declared: HookDeclaration) -> str | None:
    """The same text for the same hook: a command of a client's settings, or a ready guard with the same options."""
    if "event" in declared.params:
        from hookline.claude.settings import identity

        return identity(declared)
    options = plain(replace(declared, name="", source=""))
    return json.dumps(options, sort_keys=True) if is_ready_guard(declared.params) else None


def _async(made: Hook, declared: HookDeclaration, runner: Runner, background: Background) -> Hook:
    """The hook, begun and not waited for; what it says is observed at most."""
    unlimited = _HANDLERS[declared.kind](replace(declared, timeout=None), runner)
    handler = background.handler(declared.name, unlimited, made.handler)
    return replace(made, handler=handler, timeout=None, mode=Mode.OBSERVE)


def _command(declared: HookDeclaration, runner: Runner) -> Handler:
    params = declared.params
    if params.get("warm") == "fork":
        from hookline.runners.local import LocalRunner
        from hookline.runners.warm import WarmRunner

        if isinstance(runner, LocalRunner):
            runner = WarmRunner(runner, preload=params.get("preload", ()))
    return process_of(declared, runner)


def _permissions(declared: HookDeclaration, _runner: Runner) -> Handler:
    """The handler of `permissions.deny`: a rule beats every hook."""
    rules = declared.params["deny"]

    def handler(_ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        facts, payload, _ = hook_context.given
        rule = denied_by(rules, facts, plain(payload))
        return (
            CONTINUE if rule is None else HookResult.block(f"denied by the rule {rule} [{declared.source}]")
        )

    return handler


def _http(declared: HookDeclaration, _runner: Runner) -> Handler:
    from hookline.handlers.http import http_handler

    params = declared.params
    foreign = "event" in params
    return http_handler(
        params["url"],
        encode=stdin_of if foreign else own_stdin_of,
        decode=lambda ending, context: (
            result_of(ending, context, reads_text=False)
            if foreign
            else own_result_of(ending, context, "http")
        ),
        headers=params["headers"],
        variables=params["variables"],
        timeout=declared.timeout,
    )


def _image(declared: HookDeclaration, runner: Runner) -> Handler:
    """In a container wherever the other hooks run: an image is never taken for something else."""
    from hookline.runners.places import containers_beside

    params = declared.params
    try:
        containers = containers_beside(runner)
    except UsageError as exc:
        return _never_started(str(exc))
    return container_handler(
        params["image"],
        containers,
        command=params.get("command", ()),
        args=params.get("args", ()),
        env={**only(os.environ, params.get("handed", ())), **params.get("env", {})},
        network=params.get("network", False),
        timeout=declared.timeout,
    )


def _never_started(why: str) -> Handler:
    def handler(_ctx: WorkflowContext | None, _context: HookContext, /) -> HookResult:
        raise HookBroke(f"could not start: {why}", kind="not_started")

    return handler


_HANDLERS: Mapping[str, Callable[[HookDeclaration, Runner], Handler]] = {
    "command": _command,
    "shell": process_of,
    "http": _http,
    "image": _image,
    "permissions": _permissions,
    "unseen": lambda _declared, _runner: _never_started("its file is not approved"),
}
_CLAUDE_DEFAULTS: Mapping[Point, OnError] = dict.fromkeys(Point, OnError.CONTINUE)
"""Their protocol's own rule: what breaks lets things go on. It is on record, and shown."""
