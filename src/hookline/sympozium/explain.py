"""`hookline check` and `hookline explain` of AgentRun manifests; nothing of them is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hookline.options import KUBERNETES, ExplainOptions
from hookline.runners import Capabilities, Order
from hookline.runners.places import PLACES, known_place
from hookline.source import text_of
from hookline.sympozium.check import doubts, doubts_of_file, not_here, not_here_of_file
from hookline.sympozium.lifecycle import ContainerHook
from hookline.sympozium.read import parse
from hookline.sympozium.request import RunRequest, spec_of
from hookline.sympozium.resolve import declaration
from hookline.sympozium.run.folders import TMP_SIZE
from hookline.sympozium.run.quota import IPC_SIZE, WORKSPACE_SIZE, shown
from hookline.sympozium.types import RunSpec
from hookline.terminal import Explained, ExplainedHook, Problems

_LITERAL = {"/workspace": "WORKSPACE", "/ipc": "IPC_DIR"}
_TOLD = (*_LITERAL.values(), "TMPDIR")
_QUOTA = (
    f"/workspace may hold {shown(WORKSPACE_SIZE)} (--workspace-size), /ipc {shown(IPC_SIZE)},"
    f" /tmp {shown(TMP_SIZE)}; a hook or an agent that writes more is ended"
)


def problems_of(file: str, env: Mapping[str, str]) -> Problems:
    """Everything that is wrong in a manifest, and what should be known of it.

    `env` is what the command line sets: a variable of this process's own reaches no hook.
    """
    manifests = parse(text_of(file), file)
    found = doubts_of_file(manifests, {*_TOLD, *env})
    notes = [*manifests.notes, *found.notes, *not_here_of_file(manifests)]
    return Problems([*map(str, manifests.problems), *map(str, found.problems)], notes)


def explain_agentrun(options: ExplainOptions) -> Explained:
    file = options.file
    if options.on == KUBERNETES:
        from hookline.sympozium.cluster.runs import explain_there

        return explain_there(options)
    asked = RunRequest(
        file=file,
        text=text_of(file),
        task="-",
        persona=options.persona,
        env=options.variables(),
        on=known_place(options.on or "sandbox"),
    )
    spec = spec_of(asked)
    declared = declaration(spec)
    notes = [*parse(asked.text, file).notes, *notes_before(spec, asked, PLACES[asked.on]), _QUOTA]
    agent = declared.agent
    head = [f"{file} ({declared.format}), on {asked.on}"]
    if agent is not None:
        head.append(f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}")
    hooks: list[ExplainedHook] = []
    heading, number = "", 0
    for hook in declared.hooks:
        number += 1
        if heading != (heading := f"{hook.points[0]} ({hook.params['stage']})"):
            number = 1
        gate = ", holds the answer back until a verdict" if hook.params.get("gate") else ""
        text = (
            f"{number}. {hook.name}  container {hook.params['image']}  limit {hook.timeout:g} s,"
            f" on error {hook.on_error}{gate}"
        )
        hooks.append(ExplainedHook(heading, text, str(hook.source)))
    value = {"declaration": declared.to_dict(), "on": asked.on, "notes": notes}
    return Explained(head=head, hooks=hooks, notes=notes, value=value)


def notes_before(spec: RunSpec, asked: RunRequest, where: Capabilities) -> list[str]:
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


def _literal(hook: ContainerHook, where: Capabilities) -> Iterator[str]:
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
