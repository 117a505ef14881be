"""One run of a file and the command line, with all that it takes from an instance or a pack; and as a declaration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from hookline.engine.hook import AgentDeclaration, Declaration, HookDeclaration, OnError
from hookline.engine.plain import plain, typed
from hookline.engine.point import Point
from hookline.errors import FileError, UsageError, meant
from hookline.kube.objects import LABEL, LONGEST_NAME
from hookline.options import KUBERNETES
from hookline.runners import Capabilities, Mount, Runner
from hookline.source import text_of
from hookline.sympozium.environment import Secrets, read_secrets, secrets_of, variable
from hookline.sympozium.phases import Stage
from hookline.sympozium.policy import governed, policy_of
from hookline.sympozium.read import NO_TASK, Pack, Persona, RunManifests, parse
from hookline.sympozium.run.folders import WORKSPACE_SIZE, Folder, FolderError
from hookline.sympozium.types import ContainerHook, Instance, ModelSpec, RunSpec, SecretRef

FORMAT = "sympozium"
SCRIPTED = "scripted"
T = TypeVar("T", RunSpec, Instance)
_NOT_TAKEN = ("name", "namespace", "ensemble", "place", "places", "elsewhere")
"""The fields of an instance that its runs do not take as they are."""
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
POINTS = {Stage.PRE_RUN: Point.RUN_START, Stage.POST_RUN: Point.RUN_END}
ON_ERROR = {Stage.PRE_RUN: OnError.FAIL, Stage.POST_RUN: OnError.CONTINUE}
_MANIFEST = "manifest.yaml"
REQUEST = "run.json"
"""The file in a run's folder that keeps its request, without the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A file and the options of the command line, as they are kept beside a run: plain data, enough to make the run again.

    Secrets are a file's name here, never values.
    """

    file: str
    text: str
    task: str = ""
    persona: str = ""
    name: str = ""
    namespace: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str = ""
    agent_command: tuple[str, ...] = ()
    """Does the work, in `agent_image` where images are used; without it the built-in agent does."""
    agent_image: str | None = None
    secrets: str = ""
    network: bool = False
    mounts: tuple[Mount, ...] = ()
    on: str = "local"
    workspace_size: int = WORKSPACE_SIZE

    @property
    def is_builtin(self) -> bool:
        """True if the built-in agent does the work, not a command of the user's."""
        return not self.agent_command

    def known_secrets(self, environ: Mapping[str, str]) -> Secrets:
        known: dict[str, Mapping[str, str]] = dict(parse(self.text, self.file).secrets)
        if self.secrets:
            known |= read_secrets(self.secrets)
        return Secrets(known=known, environ=environ, file=self.secrets)


def spec_of(asked: RunRequest) -> RunSpec:
    """The requested run. A file with a mistake in it is not run: the hook that is missing may be a guard."""
    manifests = parse(asked.text, asked.file)
    if manifests.problems:
        raise manifests.problems[0]
    return _with_model(run_of(manifests, asked), asked.model)


def run_of(manifests: RunManifests, asked: RunRequest | None = None) -> RunSpec:
    """The run that the file asks for: its AgentRun, else a new one of its instance, or of a pack's persona.

    A name, namespace, task and variables of the request override those of the file. A FileError names the missing
    object, those to choose from, or a limit of the agent's policy that the run breaks. A policy that the file lacks is
    looked up by the caller where the run is for a cluster.
    """
    asked = asked or RunRequest(file=manifests.file, text="", on=KUBERNETES)
    name = asked.name
    if name and (len(name) > LONGEST_NAME or not LABEL.fullmatch(name)):
        raise UsageError(
            f"--name is {name!r}; a run's name has at most {LONGEST_NAME} lower-case letters, digits and - inside,"
            " such as nightly-1"
        )
    if asked.persona:
        found = _started(_persona(manifests, asked.persona))
    elif manifests.runs:
        found = with_instance(manifests, _only(manifests, list(manifests.runs), "AgentRuns"))
    elif manifests.instances:
        found = _started(_only(manifests, list(manifests.instances), "agents"))
    else:
        found = _started(_persona(manifests, ""))
    try:
        policy = policy_of(found, manifests.policies)
    except FileError:
        if asked.on != KUBERNETES:
            raise
        policy = None
    found = replace(
        found,
        name=name or found.name,
        namespace=asked.namespace or found.namespace,
        task=asked.task or found.task,
        env=dict(sorted({**found.env, **asked.env}.items())),
    )
    if not found.task:
        raise found.place.problem(f"{NO_TASK}; or give it on the command line")
    found = replace(found, session_key=found.session_key or found.name)
    return governed(found, policy, asked.on) if policy else found


def with_instance(manifests: RunManifests, run: RunSpec) -> RunSpec:
    """The run with all that it takes from the instance that it names, where that is in the same file."""
    instance = _instance_named(manifests, run)
    return _taken(run, instance) if instance else run


def named(name: str, mark: str) -> str:
    """A name for one more run of that name: with the mark behind it, and never too long."""
    return f"{name[: LONGEST_NAME - len(mark) - 1].rstrip('-')}-{mark}"


def with_provider(run: RunSpec) -> RunSpec:
    """The run with a provider for its model, where the file has only the name of the model, as the seed does."""
    model = run.model
    if model is None or model.provider or not model.model:
        return run
    known = (provider for begin, provider in _PROVIDERS.items() if model.model.startswith(begin))
    return replace(run, model=replace(model, provider=next(known, "openai")))


def declaration(run: RunSpec) -> Declaration:
    """The run's agent and hooks, for `explain` and for the record."""
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
        points=(POINTS[stage],),
        kind="container",
        params=params | ({"gate": True, "gateDefault": gate_default} if hook.gate else {}),
        timeout=hook.timeout,
        on_error=ON_ERROR[stage],
        source=str(hook.place),
    )


def _shown(value: str | SecretRef) -> Any:
    if isinstance(value, str):
        return value
    return {"secretKeyRef": {"name": value.name, "key": value.key, "optional": value.optional}}


def secret_values(asked: RunRequest, spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """The texts that must not be on any record: the known secrets, and those in the manifest itself."""
    written, refs = secrets_of(spec)
    outside = [environ[variable(ref)] for ref in refs if variable(ref) in environ]
    return [*asked.known_secrets(environ).all(), *written, *outside]


def check_request(asked: RunRequest, spec: RunSpec, environ: Mapping[str, str], agent_runner: Runner) -> None:
    """Refuse what would go wrong for certain, before anything is begun."""
    secrets = asked.known_secrets(environ)
    for ref in secrets_of(spec)[1]:
        secrets.value(ref)
    if asked.agent_command and agent_runner.capabilities.uses_image and not asked.agent_image:
        raise UsageError("--agent-command in a container needs an image to run in: give --agent-image")
    if asked.is_builtin and not spec.dry_run:
        _check_model(asked, spec, agent_runner.capabilities)


def keep_request(folder: Folder, asked: RunRequest) -> None:
    """Write the request beside the run, so that it can be ended later."""
    kept = plain(asked)
    folder.write_text(_MANIFEST, kept.pop("text"))
    folder.write(REQUEST, kept)


def kept_request(folder: Folder) -> RunRequest:
    """The request that the run of a folder was begun with."""
    found = folder.read(REQUEST)
    if found is None:
        raise FolderError(
            f"{folder.path / REQUEST} cannot be read, so the run cannot be ended as it was begun"
        )
    return typed(RunRequest, {**found, "text": text_of(folder.path / _MANIFEST)})


def _check_model(asked: RunRequest, spec: RunSpec, where: Capabilities) -> None:
    model = spec.model
    if model is None or not model.model:
        told = f"; {model.ref!r} is a Model of a cluster" if model and model.ref else ""
        raise spec.place.problem(
            f"the built-in agent has no model{told}; give --model provider/name, or --agent-command"
        )
    if model.provider == SCRIPTED:
        if not Path(model.model).is_file():
            raise UsageError(f"--model: there is no script {model.model!r}")
    elif where.isolates and not asked.network:
        raise UsageError(
            f"the agent asks {model.provider}/{model.model} over the network, and"
            f" {where.name} has none: give --network"
        )


def _with_model(spec: RunSpec, given: str) -> RunSpec:
    """The run with the model of the command line (provider/name), and with a provider where it has only a name."""
    model = spec.model or ModelSpec()
    if given:
        provider, _, name = given.partition("/")
        if not name:
            raise UsageError(f"--model is {given!r}; give provider/name, as in openai/gpt-4o")
        model = replace(model, provider=provider, model=name, ref="")
    if model.provider == SCRIPTED:
        model = replace(model, model=os.path.abspath(model.model))
    return with_provider(replace(spec, model=model))


def _taken(run: RunSpec, instance: Instance) -> RunSpec:
    """The run with all that it lacks taken from the instance; a lifecycle is taken whole or not at all."""
    names = [each.name for each in fields(Instance) if each.name not in _NOT_TAKEN]
    return replace(
        run,
        ensemble=instance.ensemble,
        places={**instance.places, **run.places},
        elsewhere={**instance.elsewhere, **run.elsewhere},
        **{name: getattr(run, name) or getattr(instance, name) for name in names},
    )


def _instance_named(manifests: RunManifests, run: RunSpec) -> Instance | None:
    """The instance that a run names, where that is in the same file; one of a pack must be switched on."""
    packs = [pack for pack in manifests.packs if pack.enabled]
    members = [each.instance for pack in packs for each in pack.members if not each.excluded]
    wanted = (run.instance, run.namespace)
    found = (each for each in (*manifests.instances, *members) if (each.name, each.namespace) == wanted)
    return next(found, None)


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
        missing = f"pack in it, so no persona {wanted!r}" if wanted else "AgentRun, Agent or Ensemble in it"
        nothing = FileError(f"there is no {missing}", file=manifests.file)
        raise manifests.problems[0] if manifests.problems else nothing
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


def _only(manifests: RunManifests, found: list[T], what: str) -> T:
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise FileError(
            f"several {what} are in it: {names}; put the others into another file", file=manifests.file
        )
    return found[0]
