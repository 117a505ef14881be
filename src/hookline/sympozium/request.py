"""What a user asked for: a file and what the command line adds; kept beside the run, so that it can be ended later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from hookline.engine.plain import plain
from hookline.errors import UsageError
from hookline.runners import Capabilities, Mount, Runner
from hookline.secret_names import secrets_in
from hookline.source import text_of
from hookline.sympozium.environment import for_agent
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import run_of
from hookline.sympozium.run.agent import SCRIPTED, AgentChoice, with_model
from hookline.sympozium.run.folders import Folder, FolderError
from hookline.sympozium.run.quota import WORKSPACE_SIZE
from hookline.sympozium.secret_refs import Secrets, read_secrets, variable
from hookline.sympozium.types import RunManifests, RunSpec

_MANIFEST = "manifest.yaml"
_NOTES = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a user asked for, as it is kept beside a run: plain, and enough to make the run of it again.

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
    agent_image: str | None = None
    secrets: str = ""
    network: bool = False
    mounts: tuple[Mount, ...] = ()
    on: str = "local"
    workspace_size: int = WORKSPACE_SIZE

    @property
    def agent(self) -> AgentChoice:
        return AgentChoice(command=self.agent_command, image=self.agent_image)

    def known_secrets(self, environ: Mapping[str, str]) -> Secrets:
        known: dict[str, Mapping[str, str]] = dict(_read(self.text, self.file).secrets)
        if self.secrets:
            known |= read_secrets(self.secrets)
        return Secrets(known=known, environ=environ, file=self.secrets)


def spec_of(asked: RunRequest) -> RunSpec:
    """The run that was asked for. A file with a mistake in it is not run: what is missing may be a guard."""
    manifests = _read(asked.text, asked.file)
    if manifests.problems:
        raise manifests.problems[0]
    found = run_of(
        manifests,
        task=asked.task,
        persona=asked.persona,
        name=asked.name,
        namespace=asked.namespace,
        env=asked.env,
    )
    return with_model(found, asked.model)


def secret_values(asked: RunRequest, spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """What must not be on any record: the known secrets, and those that stand in the manifest itself."""
    hooks = (*spec.hooks.pre_run, *spec.hooks.post_run)
    written = secrets_in(spec.env, *(hook.env for hook in hooks))
    refs = [value for hook in hooks for value in hook.env.values() if not isinstance(value, str)]
    outside = [environ[variable(ref)] for ref in refs if variable(ref) in environ]
    return [*asked.known_secrets(environ).all(), *written, *outside]


@lru_cache(maxsize=16)
def _read(text: str, file: str) -> RunManifests:
    """Asked for more than once in a run, and reading takes as long as starting a process."""
    return parse(text, file)


def check(asked: RunRequest, spec: RunSpec, environ: Mapping[str, str], agent_runner: Runner) -> None:
    """What would go wrong for certain is told before anything is begun."""
    secrets = asked.known_secrets(environ)
    for hook in (*spec.hooks.pre_run, *spec.hooks.post_run):
        for value in hook.env.values():
            if not isinstance(value, str):
                secrets.value(value)
    for ref in for_agent(spec).secrets:
        secrets.value(ref)
    if asked.agent_command and agent_runner.capabilities.uses_image and not asked.agent_image:
        raise UsageError("--agent-command in a container needs an image to run in: give --agent-image")
    if asked.agent.is_builtin and not spec.dry_run:
        _check_model(asked, spec, agent_runner.capabilities)


def _check_model(asked: RunRequest, spec: RunSpec, where: Capabilities) -> None:
    model = spec.model
    if model is None or not model.model:
        told = f"; {model.ref!r} is a Model of a cluster" if model and model.ref else ""
        raise spec.place.problem(
            f"no model is told for the built-in agent{told}; give --model provider/name, or --agent-command"
        )
    if model.provider == SCRIPTED:
        if not Path(model.model).is_file():
            raise UsageError(f"--model: there is no script {model.model!r}")
    elif where.cuts_network and not asked.network:
        raise UsageError(
            f"the agent asks {model.provider}/{model.model} over the network, and there is none in"
            f" {where.name}: give --network"
        )


def kept_with(folder: Folder, asked: RunRequest) -> None:
    """Put it beside the run."""
    kept = {each.name: getattr(asked, each.name) for each in fields(asked) if each.name != "text"}
    folder.write_text(_MANIFEST, asked.text)
    folder.write(_NOTES, plain(kept))


def asked_again(folder: Folder) -> RunRequest:
    """What was asked for when the run of a folder was begun."""
    found = folder.read(_NOTES)
    if not isinstance(found, dict):
        raise FolderError(
            f"{folder.path / _NOTES} cannot be read, so the run cannot be ended as it was begun"
        )
    notes = cast("dict[str, Any]", found)
    given: dict[str, Any] = {
        **notes,
        "text": text_of(folder.path / _MANIFEST),
        "agent_command": tuple(notes["agent_command"]),
        "mounts": tuple(Mount(**each) for each in notes["mounts"]),
    }
    return RunRequest(**given)
