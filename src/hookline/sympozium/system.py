"""AgentRun manifests: `hookline run agentrun.yaml`, its `--resume`, and what `check`, `explain` and `runs` say of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from hookline.engine.pipeline import Recorder
from hookline.engine.record import Begun, Ended, Journal, Record
from hookline.errors import UsageError
from hookline.journal.home import default_path
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.journal.view import Line, duration
from hookline.kube.connect import chosen_cluster
from hookline.pyagent.run import approver_of, hooks_of, interruptible, watcher
from hookline.runners import Capabilities, Order, Runner
from hookline.runners.container import ContainerRunner
from hookline.runners.local import LocalRunner
from hookline.runners.places import PLACES, check_bubblewrap, known_place, mount_of
from hookline.runners.sandbox import SandboxRunner
from hookline.source import text_of
from hookline.sympozium.check import doubts, doubts_of_file, not_here, not_here_of_file
from hookline.sympozium.cluster.submit import refuse_useless, submit
from hookline.sympozium.phases import WITHHELD, Phase
from hookline.sympozium.read import parse
from hookline.sympozium.request import Asked, secret_values, spec_of
from hookline.sympozium.resolve import declaration
from hookline.sympozium.run.folders import TMP_SIZE, Home
from hookline.sympozium.run.local import Ran, Site, recovered, resumed, run
from hookline.sympozium.run.quota import IPC_SIZE, WORKSPACE_SIZE, in_bytes, shown
from hookline.sympozium.types import HookSpec, RunSpec
from hookline.terminal import err, found_run, open_journal, out, print_json, secrets_of

__all__ = [
    "explain_agentrun",
    "lines_of_status",
    "problems_of_agentrun",
    "resume_agentrun",
    "run_agentrun",
    "status_lines",
]

_PULLS = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_EXIT = {Phase.SUCCEEDED: 0, Phase.SKIPPED: 0}
_LITERAL = {"/workspace": "WORKSPACE", "/ipc": "IPC_DIR"}
_TOLD = (*_LITERAL.values(), "TMPDIR")
_ROOM = (
    f"/workspace may hold {shown(WORKSPACE_SIZE)} (--workspace-size), /ipc {shown(IPC_SIZE)},"
    f" /tmp {shown(TMP_SIZE)}; a hook or an agent that writes more is ended"
)
_STYLE = {"Failed": "red", "Succeeded": "green"}


def run_agentrun(
    file: str,
    task: str = "",
    *,
    persona: str = "",
    on: str = "",
    secrets: Path | None = None,
    agent_command: str = "",
    agent_image: str = "",
    network: bool = False,
    mounts: list[str] | None = None,
    workspace_size: str = "",
    name: str = "",
    namespace: str = "",
    context: str = "",
    kubeconfig: str = "",
    hooks: list[str] | None = None,
    model: str = "",
    ask: str = "",
    env: Mapping[str, str] | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Run a manifest with its containers around it; `env` is what the command line sets for hooks and agent."""
    target = chosen_cluster(on, context, kubeconfig, namespace=namespace)
    if target is not None:
        refuse_useless(
            {
                "secrets": secrets,
                "agent-command": agent_command,
                "agent-image": agent_image,
                "network": network,
                "mount": mounts,
                "workspace-size": workspace_size,
                "hooks": hooks,
                "ask": ask,
            }
        )
    asked = Asked(
        file=os.path.abspath(file),
        text=text_of(file),
        task=task,
        persona=persona,
        name=name,
        namespace=namespace,
        env=dict(env or {}),
        model=model,
        agent_command=tuple(shlex.split(agent_command)),
        agent_image=agent_image or None,
        secrets=str(secrets.absolute()) if secrets else "",
        network=network,
        mounts=tuple(map(mount_of, mounts or ())),
        on=on if target else _place(on),
        workspace_size=in_bytes(workspace_size) if workspace_size else WORKSPACE_SIZE,
    )
    spec = _sound(asked, quiet=quiet)
    if target is not None:
        return submit(asked, spec, target, json=json, quiet=quiet)
    values = secret_values(asked, spec, os.environ)
    with _site(
        asked.on, values, hooks=hooks, ask=ask, builtin=asked.agent.is_builtin, json=json, quiet=quiet
    ) as (site, runners):
        if not quiet:
            for text in _told(spec, asked, PLACES[asked.on]):
                err.print(text, style="yellow")

        async def main() -> int:
            try:
                _tell_recovered(await recovered(site), quiet=quiet)
                return _ended(await run(site, asked), json=json)
            finally:
                await runners.close()

        return interruptible(main)


def resume_agentrun(
    run_id: str, *, on: str = "", ask: str = "", json: bool = False, quiet: bool = False
) -> int:
    """End a run that was broken off: its postRun hooks, its record, its folders."""
    home = _home()
    with open_journal() as journal:
        run_id = found_run(journal, run_id)
        records = journal.records(run_id)
    folder = home.folder(run_id)
    if folder is None:
        over = next((each for each in records if isinstance(each, Ended) and each.scope == "run"), None)
        if over is not None:
            raise UsageError(f"run {run_id} has ended ({over.status}); there is nothing to resume")
        raise UsageError(
            f"run {run_id} cannot be resumed: it is at work in another process, or its folders are gone"
        )
    notes = cast("Mapping[str, Any]", folder.read("run.json") or {})
    place = on or str(notes.get("on") or "")
    with _site(
        _place(place), [], ask=ask, builtin=not notes.get("agent_command"), json=json, quiet=quiet
    ) as (site, runners):

        async def main() -> int:
            try:
                ran = await resumed(site, folder)
                if ran is None:
                    err.print(f"run {run_id} had ended; what was left of it is removed")
                    return 0
                return _ended(ran, json=json)
            finally:
                await runners.close()

        return interruptible(main)


def problems_of_agentrun(file: str, env: Mapping[str, str] | None = None) -> tuple[list[str], list[str]]:
    """Everything that is wrong in a manifest, and what should be known of it; nothing of it is run.

    `env` is what the command line sets: a variable of this process's own reaches no hook.
    """
    manifests = parse(text_of(file), file)
    found = doubts_of_file(manifests, {*_TOLD, *(env or ())})
    notes = [*manifests.notes, *found.notes, *not_here_of_file(manifests)]
    return [*map(str, manifests.problems), *map(str, found.problems)], notes


def explain_agentrun(
    file: str, *, persona: str = "", on: str = "", env: Mapping[str, str] | None = None, json: bool = False
) -> int:
    """Say which containers run where, in which order, with what limits, from which source."""
    asked = Asked(
        file=file,
        text=text_of(file),
        task="-",
        persona=persona,
        env=dict(env or {}),
        on=known_place(on or "sandbox"),
    )
    spec = spec_of(asked)
    where = PLACES[asked.on]
    declared = declaration(spec)
    notes = [*parse(asked.text, file).notes, *_told(spec, asked, where), _ROOM]
    if json:
        print_json({"declaration": declared.to_dict(), "on": asked.on, "notes": notes})
        return 0
    agent = declared.agent
    out.print(f"{file} ({declared.format}), on {asked.on}")
    if agent is not None:
        out.print(f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}")
    point, number = None, 0
    for hook in declared.hooks:
        number += 1
        if hook.points[0] != point:
            point, number = hook.points[0], 1
            out.print(f"\n{point} ({hook.params['stage']})", style="bold")
        gate = ", holds the answer back until a verdict" if hook.params.get("gate") else ""
        out.print(
            f"  {number}. {hook.name}  container {hook.params['image']}  limit {hook.timeout:g} s,"
            f" on error {hook.on_error}{gate}"
        )
        out.print(f"     {hook.source}", style="dim")
    if not declared.hooks:
        out.print("\nno hooks")
    for note in notes:
        out.print(f"\n{note}")
    return 0


def status_lines(records: list[Record]) -> Iterator[Line]:
    """What `hookline runs RUN` adds for such a run: its phase, its conditions and how each hook ended."""
    status = _status_in(records)
    if status is not None:
        yield from lines_of_status(status)


def lines_of_status(status: Mapping[str, Any]) -> Iterator[Line]:
    yield Line(
        f"phase  {status.get('phase', '?')}", f"bold {_STYLE.get(str(status.get('phase')), '')}".strip()
    )
    for key in ("error", "result", "exitCode", "gateVerdict", "workspace", "note"):
        if status.get(key) not in (None, ""):
            yield Line(f"  {key}  {_one_line(status[key])}")
    if isinstance(status.get("gate"), dict):
        gate = cast("Mapping[str, Any]", status["gate"])
        yield Line(f"  gate  {gate.get('action')} by {gate.get('by') or 'nobody'}")
    for each in cast("list[Mapping[str, Any]]", status.get("conditions") or []):
        yield Line(f"  condition  {each.get('type')}: {each.get('message')}", "magenta")
    for each in cast("list[Mapping[str, Any]]", status.get("hooks") or []):
        yield from _hook_lines(each)


def _hook_lines(told: Mapping[str, Any]) -> Iterator[Line]:
    code = f", exit code {told['exitCode']}" if "exitCode" in told else ""
    took = f", {duration(float(told['seconds']))}" if "seconds" in told else ""
    yield Line(f"  {told.get('stage')} {told.get('name')}  {told.get('state')}{code}{took}")
    if told.get("message"):
        yield Line(f"    {_one_line(told['message'])}", "magenta")
    for line in str(told.get("tail") or "").splitlines():
        yield Line(f"    | {line}", "dim")


def _status_in(records: list[Record]) -> Mapping[str, Any] | None:
    begun = next((each for each in records if isinstance(each, Begun) and each.scope == "run"), None)
    if begun is None or (begun.declaration or {}).get("format") != "sympozium":
        return None
    over = [each.output for each in records if isinstance(each, Ended) and each.scope == "run"]
    found = over[-1] if over else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else None


def _sound(asked: Asked, *, quiet: bool) -> RunSpec:
    """The run, if it can be run. What cannot work as it is written is told, and run: the hook itself will tell."""
    manifests = parse(asked.text, asked.file)
    for text in (*map(str, manifests.problems), *(() if quiet else manifests.notes)):
        err.print(text, style="yellow")
    if manifests.problems:
        count = len(manifests.problems)
        raise UsageError(
            f"{asked.file} has {'a mistake' if count == 1 else f'{count} mistakes'}; nothing was run"
        )
    return spec_of(asked)


def _told(spec: RunSpec, asked: Asked, where: Capabilities) -> list[str]:
    """What should be known before it runs there, each once."""
    known = {*spec.env, *asked.env, *_TOLD}
    found = [str(each) for each in doubts(spec.hooks, known).problems]
    found += not_here(spec)
    for hook in (*spec.hooks.pre_run, *spec.hooks.post_run):
        order = Order(argv=(), image=hook.image if not where.uses_image else None)
        found += where.shortfalls(order)
        found += _literal(hook, where)
    if asked.agent.is_builtin and where.uses_image:
        found.append(
            "the built-in agent is in no image: it runs in the sandbox, or with --agent-command in one"
        )
    if not asked.network and where.cuts_network and spec.hooks.pre_run + spec.hooks.post_run:
        found.append(f"{where.name} has no network; --network gives it to hooks and agent")
    return list(dict.fromkeys(found))


def _literal(hook: HookSpec, where: Capabilities) -> Iterator[str]:
    """Where there is no file system of its own, a path that is written out leads elsewhere."""
    if where.hides_files:
        return
    for place, variable in _LITERAL.items():
        if any(place in word for word in (*hook.command, *hook.args)):
            yield str(
                hook.place.problem(
                    f"hook {hook.name!r} names {place}, which is no place of the run's with --on {where.name};"
                    f" write ${variable}, or use --on sandbox"
                )
            )


def _place(word: str) -> str:
    if word:
        return known_place(word)
    check_bubblewrap()
    return "sandbox"


def _home() -> Home:
    return Home(default_path(os.environ).parent / "agentruns")


@contextmanager
def _site(
    on: str,
    secrets: list[str],
    *,
    hooks: list[str] | None = None,
    ask: str = "",
    builtin: bool = True,
    json: bool = False,
    quiet: bool = False,
) -> Generator[tuple[Site, _Runners]]:
    mask = Mask([*secrets_of(os.environ), *secrets])
    watch = watcher(mask, json=json, quiet=quiet)
    with open_journal(secrets) as journal:
        runners = _Runners(on)
        more = hooks_of(hooks, runners.local)
        site = Site(
            home=_home(),
            runner_of=runners.of,
            agent_runner=runners.for_agent(builtin=builtin),
            recorder=Recorder(journal, [watch] if watch else []),
            approver=approver_of(ask, cast("Journal", journal), mask),
            owner=owner(),
            environ=dict(os.environ),
            hooks=tuple(more),
            masked=(*secrets_of(os.environ), *secrets),
        )
        yield site, runners


class _Runners:
    """The runners of one command, made when they are first needed; all stand on one."""

    def __init__(self, on: str) -> None:
        self.on = on
        self.local = LocalRunner()
        self._made: dict[str, Runner] = {}

    def of(self, pull_policy: str) -> Runner:
        makes: dict[str, Callable[[], Runner]] = {
            "local": lambda: self.local,
            "sandbox": partial(SandboxRunner, self.local),
            "container": partial(ContainerRunner, self.local, pull=cast("Any", _PULLS[pull_policy])),
        }
        key = pull_policy if self.on == "container" else self.on
        if key not in self._made:
            self._made[key] = makes[self.on]()
        return self._made[key]

    async def close(self) -> None:
        for each in (*self._made.values(), self.local):
            await each.close()

    def for_agent(self, *, builtin: bool) -> Runner:
        """The built-in agent is in no image; beside containers it has a sandbox."""
        if self.on != "container" or not builtin:
            return self.of("IfNotPresent")
        return SandboxRunner(self.local)


def _ended(ran: Ran, *, json: bool) -> int:
    if ran.problem:
        err.print(ran.problem, style="yellow")
    if ran.kept is not None:
        err.print(f"the workspace is kept: {ran.kept}; it is yours to remove", style="yellow")
    if json:
        print_json({"record": "result", "run_id": ran.run_id, "status": ran.status})
    elif ran.phase is Phase.SKIPPED:
        out.print(f"skipped: {ran.status.get('result', '')}")
    elif ran.phase is Phase.SUCCEEDED:
        out.print(str(ran.status.get("result", "")))
    else:
        err.print(f"error: {ran.status.get('error') or ran.phase} (hookline runs {ran.run_id})", style="red")
    # The run succeeded; what comes after it must not go on as if its answer were out.
    return 1 if ran.status.get("gateVerdict") in WITHHELD else _EXIT.get(ran.phase, 1)


def _tell_recovered(ended: list[Ran], *, quiet: bool) -> None:
    for each in ended:
        if each.problem:
            err.print(f"run {each.run_id} broke off and still owes its end: {each.problem}", style="yellow")
        elif not quiet:
            err.print(f"run {each.run_id} had broken off; it is ended now: {each.phase}", style="yellow")


def _one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
