"""What a file of manifests holds, as values, and what one run comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hookline.errors import FileError
from hookline.table import Location

GROUP = "sympozium.ai/v1alpha1"
HOOK_TIMEOUT = 300.0
"""Seconds for a hook where the file does not say."""
RUN_TIMEOUT = 600.0
"""Seconds for the agent where the file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A value that stands in a Secret; whoever runs looks it up. A missing `optional` one leaves the variable unset."""

    name: str
    key: str
    optional: bool = False
    place: Location = field(default=Location(""), compare=False)


Value = str | SecretRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHook:
    """One container of `preRun` or `postRun`. `places` are those of `command` and `args`, one for each text."""

    name: str
    image: str
    pull_policy: str = "IfNotPresent"
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, Value] = field(default_factory=dict[str, Value])
    timeout: float = HOOK_TIMEOUT
    gate: bool = False
    place: Location = field(default=Location(""), compare=False)
    places: tuple[Location, ...] = field(default=(), compare=False, repr=False)
    env_places: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RbacRule:
    """What hooks may do with objects of the cluster."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The containers around a run, in the order of the file."""

    pre_run: tuple[ContainerHook, ...] = ()
    post_run: tuple[ContainerHook, ...] = ()
    rbac: tuple[RbacRule, ...] = ()
    gate_default: str = "block"
    place: Location = field(default=Location(""), compare=False)

    @property
    def gate(self) -> int | None:
        """The position in `post_run` of the hook that the answer waits for."""
        return next((index for index, hook in enumerate(self.post_run) if hook.gate), None)

    @property
    def post_order(self) -> tuple[int, ...]:
        """Positions in `post_run` as they are run: the gate first, so that the others see what it let through."""
        return tuple(sorted(range(len(self.post_run)), key=lambda index: not self.post_run[index].gate))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which model is asked. `ref` names a Model of the cluster instead."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    auth_secret: str = ""
    thinking: str = ""
    ref: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task that is an object: how it is worked on, with which tool and what parameters."""

    mode: str
    tool: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """`agentSandbox`: the agent's pod as a Sandbox of the cluster."""

    enabled: bool = False
    runtime_class: str = ""
    warm_pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, with all that it took from an instance or a pack.

    `elsewhere` are the keys in the file that only a cluster heeds, and where they stand. A `fragment` was written
    without its head.
    """

    name: str
    namespace: str = "default"
    instance: str = ""
    ensemble: str = ""
    agent_id: str = "default"
    session_key: str = ""
    model: ModelSpec | None = None
    task: str | TaskSpec | None = None
    system_prompt: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = None
    image_pull_secrets: tuple[str, ...] = ()
    cleanup: str = "delete"
    sandbox: Sandbox | None = None
    lifecycle: Lifecycle | None = None
    mode: str = "task"
    dry_run: bool = False
    canary: bool = False
    use_context: bool = True
    skills: tuple[str, ...] = ()
    tools_allowed: tuple[str, ...] = ()
    tools_denied: tuple[str, ...] = ()
    fragment: bool = False
    place: Location = field(default=Location(""), compare=False)
    elsewhere: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)

    @property
    def hooks(self) -> Lifecycle:
        """The lifecycle, empty where there is none."""
        return self.lifecycle or Lifecycle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An `Agent` (once `SympoziumInstance`): what the runs made of it begin with."""

    name: str
    namespace: str = "default"
    ensemble: str = ""
    model: ModelSpec | None = None
    system_prompt: str = ""
    lifecycle: Lifecycle | None = None
    timeout: float | None = None
    sandbox: Sandbox | None = None
    skills: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    tools_allowed: tuple[str, ...] = ()
    tools_denied: tuple[str, ...] = ()
    place: Location = field(default=Location(""), compare=False)
    elsewhere: Mapping[str, Location] = field(default_factory=dict[str, Location], compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A persona: its name in the pack, and the instance that it becomes, `<pack>-<persona>`."""

    name: str
    instance: Instance
    excluded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """An `Ensemble` (once `PersonaPack`). One that is not enabled gives nothing."""

    name: str
    namespace: str = "default"
    kind: str = "Ensemble"
    enabled: bool = True
    members: tuple[Persona, ...] = ()
    place: Location = field(default=Location(""), compare=False)


class RunManifests(NamedTuple):
    """What a file holds. `secrets` are those that are written in it, by name."""

    runs: tuple[RunSpec, ...] = ()
    instances: tuple[Instance, ...] = ()
    packs: tuple[Pack, ...] = ()
    secrets: Mapping[str, Mapping[str, str]] = {}
    problems: tuple[FileError, ...] = ()
    notes: tuple[str, ...] = ()
    file: str = ""
