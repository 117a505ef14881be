"""`hookline run agentrun.yaml` on this machine, and its `--resume`: options, runners, and what is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any

from hookline.engine.record import Ended
from hookline.errors import UsageError
from hookline.hookfile.approver import approver_of
from hookline.hookfile.attach import hooks_of
from hookline.hookfile.person import agent_above
from hookline.journal import default_path, open_journal
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.options import KUBERNETES, RunOptions, refuse_given, target_of, words_of
from hookline.runners import Runner
from hookline.runners.container import ContainerRunner, Pull
from hookline.runners.local import LocalRunner
from hookline.runners.places import check_bubblewrap, known_place, mount_of
from hookline.runners.sandbox import SandboxRunner
from hookline.secrets import secrets_in
from hookline.source import text_of
from hookline.sympozium.check import notes_before
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import REQUEST, RunRequest, secret_values, spec_of
from hookline.sympozium.run.folders import WORKSPACE_SIZE, Home, in_bytes
from hookline.sympozium.run.hooks import LocalSite
from hookline.sympozium.run.local import Ran, recovered, resumed, run
from hookline.sympozium.types import RunSpec
from hookline.sympozium.view import print_end
from hookline.terminal import err, found_run, interruptible, refuse_mistakes, warn, watcher

_PULLS: Mapping[str, Pull] = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_ONLY_HERE = (
    "secrets",
    "agent_command",
    "agent_image",
    "network",
    "mount",
    "workspace_size",
    "hooks",
    "ask",
    "code_to",
)


def run_agentrun(options: RunOptions) -> int:
    """Run a manifest with its containers around it, here or on a cluster."""
    target = target_of(options)
    if target is not None:
        refuse_given(options, _ONLY_HERE, f"not with --on {KUBERNETES}; it is for runs on this machine")
    asked = RunRequest(
        file=os.path.abspath(options.file),
        text=text_of(options.file),
        task=sys.stdin.read() if options.input == "-" else options.input,
        persona=options.persona,
        name=options.name,
        namespace=options.namespace,
        env=options.variables(),
        model=options.model,
        agent_command=tuple(words_of(options.agent_command, "--agent-command")),
        agent_image=options.agent_image or None,
        secrets=str(options.secrets.absolute()) if options.secrets else "",
        network=options.network,
        mounts=tuple(map(mount_of, options.mount)),
        on=options.on if target else _place(options.on),
        workspace_size=in_bytes(options.workspace_size) if options.workspace_size else WORKSPACE_SIZE,
    )
    spec = _sound(asked, quiet=options.quiet)
    if target is not None:
        from hookline.sympozium.cluster.submit import submit

        return submit(asked, spec, target, json=options.json, quiet=options.quiet)
    values = secret_values(asked, spec, os.environ)

    async def work(site: LocalSite) -> int:
        for text in () if options.quiet else notes_before(spec, asked):
            warn(text)
        _tell_recovered(await recovered(site), quiet=options.quiet)
        return _ended(await run(site, asked), json=options.json)

    return _at_work(work, asked.on, values, options, builtin=asked.is_builtin)


def resume_agentrun(options: RunOptions) -> int:
    """End a run that was broken off: its postRun hooks, its record, its folders."""
    home = _home()
    with open_journal() as journal:
        run_id = found_run(journal, options.resume)
        records = journal.records(run_id)
    folder = home.folder(run_id)
    if folder is None:
        over = next((each for each in records if isinstance(each, Ended) and each.scope == "run"), None)
        if over is not None:
            raise UsageError(f"run {run_id} has ended ({over.status}); there is nothing to resume")
        raise UsageError(
            f"run {run_id} cannot be resumed: it is at work in another process, or its folders are gone"
        )
    notes = folder.read(REQUEST) or {}
    place = options.on or str(notes.get("on") or "")

    async def work(site: LocalSite) -> int:
        ran = await resumed(site, folder)
        if ran is None:
            err.print(f"run {run_id} had ended; what was left of it is removed")
            return 0
        return _ended(ran, json=options.json)

    return _at_work(work, _place(place), [], options, builtin=not notes.get("agent_command"))


def _sound(asked: RunRequest, *, quiet: bool) -> RunSpec:
    """The run of a file without mistakes. Doubts about the commands of its hooks do not keep it from running."""
    manifests = parse(asked.text, asked.file)
    for text in (*map(str, manifests.problems), *(() if quiet else manifests.notes)):
        warn(text)
    refuse_mistakes(asked.file, len(manifests.problems))
    return spec_of(asked)


def _place(word: str) -> str:
    if word:
        return known_place(word)
    check_bubblewrap()
    return "sandbox"


def _home() -> Home:
    return Home(default_path(os.environ).parent / "agentruns")


def _at_work(
    work: Callable[[LocalSite], Coroutine[Any, Any, int]],
    on: str,
    secrets: Sequence[str],
    options: RunOptions,
    *,
    builtin: bool,
) -> int:
    masked = (*secrets_in(os.environ), *secrets)
    mask = Mask(masked)
    watch = watcher(mask, json=options.json, quiet=options.quiet)
    local = LocalRunner()
    with open_journal(secrets) as journal:
        runner_of = _runners(on, local)
        # The built-in agent is in no image; beside containers it has a sandbox.
        in_sandbox = builtin and on == "container"
        # The request of a run is kept with it; no hooks are added to end it.
        files = () if options.resume else options.hooks
        site = LocalSite(
            home=_home(),
            runner_of=runner_of,
            agent_runner=SandboxRunner(local) if in_sandbox else runner_of("IfNotPresent"),
            journal=journal,
            owner=owner(),
            watchers=(watch,) if watch else (),
            approver=approver_of(options.ask, journal, mask, agent_above(os.environ), options.code_to),
            environ=dict(os.environ),
            hooks=tuple(hooks_of(files, local)),
            masked=masked,
        )

        async def main() -> int:
            try:
                return await work(site)
            finally:
                await local.close()

        return interruptible(main)


def _runners(on: str, local: LocalRunner) -> Callable[[str], Runner]:
    """The runner for each pull policy of an image; all are on the one local runner, and end with it."""

    @cache
    def in_container(policy: str) -> Runner:
        return ContainerRunner(local, pull=_PULLS[policy])

    if on == "container":
        return in_container
    runner = SandboxRunner(local) if on == "sandbox" else local
    return lambda _: runner


def _ended(ran: Ran, *, json: bool) -> int:
    if ran.problem:
        warn(ran.problem)
    if ran.kept is not None:
        warn(f"the workspace is kept: {ran.kept}; it is yours to remove")
    return print_end(ran.run_id, ran.phase, ran.status, json=json)


def _tell_recovered(ended: list[Ran], *, quiet: bool) -> None:
    for each in ended:
        if each.problem:
            warn(f"run {each.run_id} broke off, and its end hooks could not run: {each.problem}")
        elif not quiet:
            warn(f"run {each.run_id} had broken off; it is ended now: {each.phase}")
