"""One run of a file, with all that it takes from an instance or a pack; and as a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from hookline.engine.declaration import AgentDeclaration, Declaration, HookDeclaration
from hookline.engine.hook import OnError
from hookline.engine.point import Point
from hookline.errors import FileError, UsageError
from hookline.kube.kinds import LABEL, LONGEST_NAME
from hookline.sympozium.lifecycle import ContainerHook, SecretRef
from hookline.sympozium.phases import Stage
from hookline.sympozium.types import NO_TASK, Instance, Pack, Persona, RunManifests, RunSpec
from hookline.table import meant

FORMAT = "sympozium"
T = TypeVar("T", RunSpec, Instance)
_TAKEN = (
    "model",
    "system_prompt",
    "lifecycle",
    "timeout",
    "sandbox",
    "skills",
    "image_pull_secrets",
    "tools_allowed",
    "tools_denied",
)
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
_POINTS = {Stage.PRE_RUN: Point.RUN_START, Stage.POST_RUN: Point.RUN_END}
_ON_ERROR = {Stage.PRE_RUN: OnError.FAIL, Stage.POST_RUN: OnError.CONTINUE}


def run_of(
    manifests: RunManifests,
    *,
    task: str = "",
    persona: str = "",
    name: str = "",
    namespace: str = "",
    env: Mapping[str, str] | None = None,
) -> RunSpec:
    """The run that the file asks for: its AgentRun, else a new one of its instance, or of a pack's persona.

    `name` is the name of the run, else that of the AgentRun or of the instance; `env` is added to the file's own.
    A FileError says what is missing, or what there is to choose from.
    """
    if name and (len(name) > LONGEST_NAME or not LABEL.fullmatch(name)):
        raise UsageError(
            f"--name is {name!r}; a run's name has at most {LONGEST_NAME} small letters, digits and - inside,"
            " such as nightly-1"
        )
    if persona:
        found = _started(_persona(manifests, persona))
    elif manifests.runs:
        found = _completed(manifests, _only(manifests, list(manifests.runs), "AgentRuns"))
    elif manifests.instances:
        found = _started(_only(manifests, list(manifests.instances), "agents"))
    else:
        found = _started(_persona(manifests, ""))
    found = replace(
        found,
        name=name or found.name,
        namespace=namespace or found.namespace,
        task=task or found.task,
        env=dict(sorted({**found.env, **(env or {})}.items())),
    )
    if not found.task:
        raise found.place.problem(f"{NO_TASK}; or give it on the command line")
    return replace(found, session_key=found.session_key or found.name)


def with_provider(run: RunSpec) -> RunSpec:
    """The run with a provider for its model, where the file tells only the model's name, as the seed does."""
    model = run.model
    if model is None or model.provider or not model.model:
        return run
    known = (provider for begin, provider in _PROVIDERS.items() if model.model.startswith(begin))
    return replace(run, model=replace(model, provider=next(known, "openai")))


def declaration(run: RunSpec) -> Declaration:
    """What the run's hooks are, for `explain` and for the record."""
    lifecycle = run.hooks
    order = [(Stage.PRE_RUN, hook) for hook in lifecycle.pre_run]
    order += [(Stage.POST_RUN, lifecycle.post_run[index]) for index in lifecycle.post_order]
    model = run.model
    return Declaration(
        format=FORMAT,
        source=run.place.file,
        agent=AgentDeclaration(
            name=run.instance or run.name,
            provider=model.provider if model else "",
            model=model.model if model else "",
            system_prompt=run.system_prompt or None,
            tools=run.tools_allowed,
        ),
        hooks=tuple(_declared(stage, hook, lifecycle.gate_default) for stage, hook in order),
        timeout=run.timeout,
    )


def _declared(stage: Stage, hook: ContainerHook, gate_default: str) -> HookDeclaration:
    params: dict[str, Any] = {
        "dialect": FORMAT,
        "stage": str(stage),
        "image": hook.image,
        "imagePullPolicy": hook.pull_policy,
        "command": list(hook.command),
        "args": list(hook.args),
        "env": {name: _shown(value) for name, value in hook.env.items()},
    }
    return HookDeclaration(
        name=hook.name,
        points=(_POINTS[stage],),
        kind="container",
        params=params | ({"gate": True, "gateDefault": gate_default} if hook.gate else {}),
        timeout=hook.timeout,
        on_error=_ON_ERROR[stage],
        source=str(hook.place),
    )


def _shown(value: str | SecretRef) -> Any:
    if isinstance(value, str):
        return value
    return {"secretKeyRef": {"name": value.name, "key": value.key, "optional": value.optional}}


def _completed(manifests: RunManifests, run: RunSpec) -> RunSpec:
    """A run with what it lacks of its instance, where that is in the same file; a lifecycle is taken whole or not."""
    instance = _instance_named(manifests, run) if run.instance else None
    if instance is None:
        return run
    return _taken(run, instance)


def _taken(run: RunSpec, instance: Instance) -> RunSpec:
    """What the run lacks is that of the instance."""
    return replace(
        run,
        ensemble=instance.ensemble,
        elsewhere={**instance.elsewhere, **run.elsewhere},
        **{name: getattr(run, name) or getattr(instance, name) for name in _TAKEN},
    )


def _instance_named(manifests: RunManifests, run: RunSpec) -> Instance | None:
    members = [
        each.instance
        for pack in manifests.packs
        if pack.enabled
        for each in pack.members
        if not each.excluded
    ]
    named = [
        each
        for each in (*manifests.instances, *members)
        if (each.name, each.namespace) == (run.instance, run.namespace)
    ]
    return named[0] if named else None


def _started(instance: Instance) -> RunSpec:
    """A new run of an instance."""
    run = RunSpec(
        name=instance.name, namespace=instance.namespace, instance=instance.name, place=instance.place
    )
    return _taken(run, instance)


def _persona(manifests: RunManifests, wanted: str) -> Instance:
    """The persona of that name, or the only one; it must be switched on."""
    all_of: list[tuple[Pack, Persona]] = [(pack, each) for pack in manifests.packs for each in pack.members]
    names = [member.name for _, member in all_of]
    if not all_of:
        raise manifests.problems[0] if manifests.problems else _nothing(manifests, wanted)
    chosen = [each for each in all_of if not wanted or wanted in (each[1].name, each[1].instance.name)]
    if not chosen:
        raise all_of[0][0].place.problem(f"there is no persona {wanted!r}{meant(wanted, names)}")
    if len(chosen) > 1:
        raise chosen[0][0].place.problem(
            f"several personas are in it: {', '.join(names)}; give --persona NAME"
        )
    pack, member = chosen[0]
    if not pack.enabled:
        raise pack.place.problem(
            f"the {pack.kind} {pack.name!r} is not enabled; write spec: {{enabled: true}}"
        )
    if member.excluded:
        raise pack.place.problem(f"{member.name!r} is among excludePersonas; take it out there")
    return member.instance


def _nothing(manifests: RunManifests, wanted: str) -> FileError:
    if wanted:
        return FileError(f"there is no pack in it, so no persona {wanted!r}", file=manifests.file)
    return FileError("there is no AgentRun, Agent or Ensemble in it", file=manifests.file)


def _only(manifests: RunManifests, found: list[T], what: str) -> T:
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise FileError(
            f"several {what} are in it: {names}; put the others into another file", file=manifests.file
        )
    return found[0]
