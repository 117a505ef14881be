"""kagent's manifests made live: an agent with its model and tools, the images of its hooks, and the hooks."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hookline.agent import Loaded
from hookline.agent.mcp_server import McpServer
from hookline.agent.models import COMPATIBLE
from hookline.agent.sdk import Agent
from hookline.agent.tools import ready_tool
from hookline.claude.hooks import PROJECT, result_of
from hookline.claude.payload import stdin_of
from hookline.claude.tools import kind_of
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Declaration, Handler, Hook, OnError
from hookline.engine.point import Point, Scope
from hookline.engine.result import HookResult
from hookline.errors import FileError, HookBroke, UsageError
from hookline.handlers.process import process_handler
from hookline.images.reference import directory_name
from hookline.kagent.agent import (
    EVENTS,
    FOLDER,
    FOLDER_VARIABLE,
    FORMAT,
    PROVIDERS,
    TIMEOUT,
    AgentPlan,
    HookEntry,
    ServerManifest,
    planned,
)
from hookline.kagent.read import chosen, read
from hookline.matcher import matcher, searched
from hookline.runners import Mount, Runner
from hookline.runners.child import missing_script, script_of
from hookline.runners.local import LocalRunner
from hookline.runners.places import EnclosedRunner

logger = logging.getLogger(__name__)

OWN_FOLDER = "HOOKLINE_HOOK_DIR"
"""The variable with the folder of the hook's own image."""
_HANDED_ON = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "HOSTNAME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    }
)
"""The variables of our environment that hooks get: no model keys; `deployment.env` adds what else they need."""
_DEFAULTS: Mapping[Point, OnError] = dict.fromkeys(Point, OnError.CONTINUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Loaded):
    """One agent of a file, ready to run but for its hooks, which `live` gives it once their images are here."""

    agents: tuple[tuple[AgentPlan, Agent], ...]

    def attach(self, runner: Runner, folder: str) -> None:
        """Make the hooks live. Their images are in `folder`; inside a sandbox or a container they are in /hooks."""
        seen = folder
        if isinstance(runner, EnclosedRunner):
            seen = FOLDER
            runner = replace(runner, mounts=(*runner.mounts, *mounts(self.refs, folder)))
        for plan, agent in self.agents:
            env = _environment(plan, seen)
            hooks = (live(each, runner, env, seen, folder) for each in plan.agent.hooks)
            agent.attached = (*hooks, *_approvals(plan))

    def take_model(self, provider: str, model: str) -> None:
        """Another model than the file's: for this agent, and for those of its tools that have none."""
        for plan, agent in self.agents:
            if agent is self.agent or plan.no_model is not None:
                agent.provider, agent.model = provider, model
                agent.provider_base_url, agent.environ = None, None

    def take_tools(self, names: Iterable[str]) -> None:
        """Ready tools besides the file's."""
        known = {each.id for each in self.agent.tools}
        added = [ready_tool(name) for name in dict.fromkeys(names) if name not in known]
        self.agent.tools = (*self.agent.tools, *added)

    def doubts(self, folder: str) -> list[FileError]:
        """A message for each hook whose program is missing or not executable in its image."""
        found: list[FileError] = []
        for plan, _ in self.agents:
            for hook in plan.agent.hooks:
                argv = program(hook.argv, hook.folder(folder), os.environ.get("PATH"))
                absent = missing_script(argv, None, os.environ)
                if absent is None and shutil.which(argv[0]) is None:
                    what = "is not executable" if os.path.exists(argv[0]) else "is not there, nor on PATH"
                    absent = f"in the image {hook.ref} {hook.argv[0]!r} {what}"
                if absent is not None:
                    told = f"hook {hook.name}: it could not start: {absent}"
                    found.append(FileError.at(hook.source, told, code="missing-program"))
        return found

    def attach_unfetched(self, runner: Runner, *, here: bool) -> list[str]:
        folder = (os.environ.get(FOLDER_VARIABLE) if here else None) or FOLDER
        self.attach(runner, folder)
        return [f"image {ref} is {folder}/{directory_name(ref)}" for ref in self.refs]

    async def check_images(self, images: Sequence[str]) -> tuple[list[FileError], list[FileError | str]]:
        """With the images present, a command that is not in its image is a mistake."""
        self.attach(LocalRunner(), FOLDER)
        sources = self.image_sources([each for each in images if each.partition("=")[0] in self.refs])
        if not self.refs or not (sources or os.environ.get(FOLDER_VARIABLE)):
            unseen = [f"image {ref}: not checked; give --image {ref}=SOURCE" for ref in self.refs]
            return [], [*self.notes, *unseen]
        async with hooks_folder(self.refs, sources, lambda _: None) as (folder, _):
            return self.doubts(folder), list(self.notes)

    @asynccontextmanager
    async def live(
        self, runner: Runner, sources: Mapping[str, str], told: Callable[[str], None]
    ) -> AsyncGenerator[None]:
        async with hooks_folder(self.refs, sources, told) as (folder, notes):
            written = self.agent.written or Declaration(format=FORMAT, source="")
            self.agent.written = replace(written, notes=(*written.notes, *notes))
            self.attach(runner, folder)
            yield

    def check_model(self) -> None:
        """Also of agents that are tools of this one."""
        for plan, _ in self.agents:
            if plan.no_model is not None:
                raise plan.no_model


def manifest(file: Path, name: str) -> Manifest:
    """The agent of that name in a file, or its only one."""
    found = read(file)
    plan = planned(found, chosen(found, file, name), os.environ)
    try:
        made = _agents(plan, file.resolve().parent)
    except UsageError as exc:
        raise FileError(str(exc), file=file) from exc
    agent = made[0][1]
    warnings = (*found.broken, *plan.all_missing)
    notes = (*found.notes, *_sessions_of_inner(made))
    agent.written = Declaration(format=FORMAT, source="", notes=tuple(map(str, (*notes, *warnings))))
    return Manifest(
        agent=agent,
        source=f"{file.resolve()}:{agent.id}",
        problems=found.problems,
        warnings=warnings,
        notes=notes,
        secrets=plan.secrets,
        refs=tuple(dict.fromkeys(hook.ref for each, _ in made for hook in each.agent.hooks)),
        is_whole=not plan.agent.fragment,
        agents=tuple(made),
    )


@asynccontextmanager
async def hooks_folder(
    refs: Sequence[str], sources: Mapping[str, str], told: Callable[[str], None]
) -> AsyncGenerator[tuple[str, list[str]]]:
    """The folder with the content of the hooks' images, each under its name, and notes on them.

    Images that are in `KAGENT_HOOKS_FOLDER` are taken from there; the others are fetched, each once.
    """
    ready = _materialised(refs)
    if len(ready) == len(refs) and not sources:
        yield os.environ.get(FOLDER_VARIABLE) or FOLDER, []
        return
    from hookline.images.fetch import default_folder, fetch, shown

    images = await fetch(
        refs,
        cache=default_folder(os.environ),
        environ=os.environ,
        base=Path(),
        sources={**ready, **sources},
        told=told,
    )
    taken = [f"image {each.ref} is {each.digest}" for each in images]
    for text in taken:
        told(text)
    with (
        tempfile.TemporaryDirectory(prefix="hookline-") as place,
        shown(images, Path(place, "hooks")) as folder,
    ):
        more = [f"image {each.ref}: {note}" for each in images for note in each.notes]
        yield str(folder), [*taken, *more]


def program(
    argv: Sequence[str], folder: str, path: str | None, *, here: str = "", own_programs: bool = False
) -> list[str]:
    """The argv of a command: a program of the image first, then one on PATH; a script only of the image.

    The agent's working folder is never searched, since the agent may write there. `here` is the image's folder on this
    machine, if it is not `folder`. With `own_programs` PATH is that of another system and is not searched.
    """
    first, *rest = argv
    if not os.path.isabs(first):
        there = os.path.exists(os.path.join(here or folder, first))
        found = own_programs or shutil.which(first, path=path) is not None
        if there or "/" in first or not found:
            return [os.path.join(folder, first), *rest]
    script = script_of([first, *rest])
    if script is None or os.path.isabs(script):
        return [first, *rest]
    at = rest.index(script)
    return [first, *rest[:at], os.path.join(folder, script), *rest[at + 1 :]]


def mounts(refs: Iterable[str], folder: str) -> Iterable[Mount]:
    """Each image below /hooks, read-only. The link in `folder` is resolved first, since it has no target inside."""
    for name in map(directory_name, refs):
        source = os.path.realpath(os.path.join(folder, name))
        yield Mount(target=f"{FOLDER}/{name}", source=source, read_only=True)


def _agents(plan: AgentPlan, base: Path) -> list[tuple[AgentPlan, Agent]]:
    """The agent of a plan, followed by those that are its tools."""
    model = plan.model
    inner = [_agents(each, base) for each in plan.agents]
    agent = Agent(
        id=plan.agent.name,
        description=plan.agent.description,
        system_prompt=plan.system_prompt,
        provider=PROVIDERS.get(model.provider, "") if model else "",
        model=model.model if model else "",
        provider_base_url=(model.base_url or None) if model else None,
        temperature=model.temperature if model else None,
        top_p=model.top_p if model else None,
        max_output_tokens=model.max_tokens if model else None,
        tools=[*(_server(each, base) for each in plan.servers), *(first for (_, first), *_ in inner)],
    )
    if plan.key is not None:
        provider = COMPATIBLE.get(agent.provider)
        agent.environ = {**os.environ, provider.key if provider else "ANTHROPIC_API_KEY": plan.key}
    return [(plan, agent), *chain.from_iterable(inner)]


def _sessions_of_inner(made: Sequence[tuple[AgentPlan, Agent]]) -> Iterable[FileError]:
    """Notes on session hooks of agents that are tools: such an agent is part of its caller's session."""
    for plan, _ in made[1:]:
        for spec in plan.agent.hooks:
            if spec.event.startswith("Session"):
                told = f"{spec.event} of {plan.agent.name!r} does not happen here: as a tool it is part of the session"
                yield FileError.at(spec.source, f"{told} of {made[0][0].agent.name!r}")


def _server(server: ServerManifest, base: Path) -> McpServer:
    more: dict[str, Any] = {} if server.timeout is None else {"timeout": server.timeout}
    if server.url:
        more |= {"url": server.url, "headers": server.headers, "transport": server.transport}
    else:
        more |= {"command": server.command, "args": server.args, "env": server.env, "cwd": str(base)}
    return McpServer(name=server.name, tools=server.tools or None, kind=_kind(server.tools), **more)


def _kind(tools: Sequence[str]) -> str:
    """The kind of a server's tools, where they are all known by name, so that a guard for every shell holds for them too."""
    kinds = {kind_of(name, FORMAT) for name in tools} or {"other"}
    only = kinds.pop()
    return "mcp" if kinds or only == "other" else only


def _environment(plan: AgentPlan, folder: str) -> dict[str, str]:
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _HANDED_ON or name.startswith("LC_")
    }
    theirs = {
        "KAGENT_NAME": plan.agent.name,
        "KAGENT_NAMESPACE": plan.agent.namespace,
        FOLDER_VARIABLE: folder,
    }
    return {**ours, **plan.env, **theirs}


def live(hook: HookEntry, runner: Runner, env: Mapping[str, str], folder: str, images: str) -> Hook:
    """A hook, started with these variables and its own. Its process has the images in `folder`, this machine in `images`."""
    own = hook.folder(folder)
    handler = process_handler(
        program(
            hook.argv,
            own,
            env.get("PATH"),
            here=hook.folder(images),
            own_programs=runner.capabilities.uses_image,
        ),
        runner,
        # kagent has one event for every end of a call; Claude Code has another one for failed calls.
        encode=lambda context: stdin_of(context, event=hook.event),
        decode=lambda ending, context: result_of(ending, context, event=hook.event),
        env={**env, PROJECT: os.getcwd(), OWN_FOLDER: own},
        timeout=TIMEOUT,
    )
    point = EVENTS[hook.event]
    text = hook.matcher if point.scope is Scope.TOOL else ""
    match = None
    try:
        match = matcher(searched(text)) if text else None
    except UsageError as exc:
        # A broken matcher matches nothing; the handler reports that at each tool call.
        handler = _not_matching(hook, exc.__cause__ or exc)
    return Hook(
        name=hook.name,
        points=frozenset({point}),
        handler=handler,
        kind="command",
        match=match,
        match_text=text or None,
        timeout=TIMEOUT,
        source=hook.source,
        limits_itself=True,
        defaults=_DEFAULTS,
    )


def _not_matching(hook: HookEntry, cause: BaseException) -> Handler:
    """The handler of a hook whose matcher is no regular expression: the call goes on, and the record shows it."""
    warned: set[str] = set()

    async def handler(_ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
        tool = hook_context.current_tool or ""
        if tool not in warned:
            warned.add(tool)
            logger.warning(
                "%s: hook %s: matcher %r is not a regular expression, so it counts as not matching tool %r: %s",
                hook.source,
                hook.name,
                hook.matcher,
                tool,
                cause,
            )
        raise HookBroke(
            f"not asked: its matcher {hook.matcher!r} is not a regular expression, so it counts as not matching"
            f" {tool!r}: {cause}",
            kind="not_started",
        )

    return handler


def _approvals(plan: AgentPlan) -> Iterable[Hook]:
    """Hooks for `requireApproval`; they come last, so that nobody is asked about a call that a hook refuses."""
    for server in plan.servers:
        if not server.approval:
            continue
        names = frozenset(server.approval)
        yield Hook(
            name=f"requireApproval: {server.name}",
            points=frozenset({Point.TOOL_START}),
            handler=_asks,
            match=lambda facts, names=names: facts.current_tool in names,
            match_text="|".join(server.approval),
            source=plan.agent.source,
        )


async def _asks(_ctx: WorkflowContext | None, hook_context: HookContext, /) -> HookResult:
    return HookResult.ask(f"{hook_context.current_tool} needs approval")


def _materialised(refs: Sequence[str]) -> dict[str, str]:
    """The images that are in the folder of hooks already, put there by an init container for example."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return {}
    places = {ref: os.path.realpath(os.path.join(folder, directory_name(ref))) for ref in refs}
    return {ref: place for ref, place in places.items() if os.path.isdir(place)}
