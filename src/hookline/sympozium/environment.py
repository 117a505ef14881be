"""The variables of hooks and agent: the fixed ones, those of the file, and the secrets that it refers to.

The fixed ones cannot be overridden; a hook's own `env` overrides the run's, before the run and after it alike.
On one machine a `secretKeyRef` is a Secret in the manifest, in a file of the user's, or in the environment.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hookline.engine.plain import cut, plain
from hookline.errors import FileError
from hookline.kube.objects import mapping
from hookline.secrets import secrets_in
from hookline.source import Document, load_all, text_of
from hookline.sympozium.phases import Seen, exit_code, result_for_hooks
from hookline.sympozium.policy import VARIABLES
from hookline.sympozium.types import RESERVED, ContainerHook, ModelSpec, RunSpec, SecretRef, TaskSpec, Value

MOST_RESULT = 32 * 1024
"""Bytes of an answer that a postRun hook is given."""
LONGEST_VARIABLE = 100 * 1024
"""Bytes of a variable with which a process can be started."""
_IDENTITY = ("AGENT_RUN_ID", "INSTANCE_NAME", "AGENT_NAMESPACE", "AGENT_ID", "SESSION_KEY", "TASK")
"""The variables that a run cannot set otherwise for its agent, besides the limits on its tools; the others are defaults."""
_PROVIDER_KEYS = ("API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_OF_THE_MODEL = "AGENT_RESULT"
_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)", re.ASCII)
_LINE = re.compile(r"(?:export\s+)?([a-z0-9.-]+)/([A-Za-z0-9._-]+)=(.*)")
_YAML = re.compile(r"^(---|kind:|apiVersion:|\{)", re.MULTILINE)
_FORM = "write NAME/KEY=VALUE, or Secret objects in YAML"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`fixed` is set as it is; in `given` a `$(NAME)` stands for a variable before it, and secrets are references."""

    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    given: Mapping[str, Value] = field(default_factory=dict[str, Value])

    def resolved(self, secrets: Secrets) -> dict[str, str]:
        """Names and texts. A FileError names the first secret that is neither there nor optional."""
        found = dict(self.fixed)
        for name, value in self.given.items():
            text = expanded(value, found) if isinstance(value, str) else secrets.value(value)
            if text is not None:
                found[name] = text
        return found


def for_hook(run: RunSpec, hook: ContainerHook, seen: Seen | None = None) -> Environment:
    """The variables of a hook; with the state of the run those of a postRun hook, which say besides how the agent ended."""
    fixed = _identity(run)
    if seen is not None:
        fixed["AGENT_EXIT_CODE"] = str(exit_code(run.hooks, seen))
        fixed["AGENT_RESULT"] = cut(result_for_hooks(run.hooks, seen, hook), MOST_RESULT)
        fixed |= {"GATE_MODE": "true"} if hook.gate else {}
    both: dict[str, Value] = {**dict(sorted(run.env.items())), **hook.env}
    given = {name: value for name, value in both.items() if name not in RESERVED}
    return Environment(fixed=fixed, given=given)


def for_agent(run: RunSpec) -> Environment:
    """The variables of the agent."""
    fixed = {
        **_identity(run),
        "AGENT_ID": run.agent_id,
        "SESSION_KEY": run.session_key,
        **({"TASK": run.task} if isinstance(run.task, str) else {}),
    }
    model = run.model or ModelSpec()
    defaults: dict[str, str] = {
        "ENSEMBLE_NAME": run.ensemble,
        "SYSTEM_PROMPT": run.system_prompt,
        "MODEL_PROVIDER": model.provider,
        "MODEL_NAME": model.model,
        "MODEL_BASE_URL": model.base_url,
        "THINKING_MODE": model.thinking,
        "MODEL_PROVIDER_HEADERS": json.dumps(dict(model.headers)) if model.headers else "",
        "USE_CONTEXT": "true" if run.use_context else "false",
        "RUN_TIMEOUT": f"{run.timeout:.3f}".rstrip("0").rstrip(".") + "s" if run.timeout else "",
        "DRY_RUN": "true" if run.dry_run else "",
        "CANARY_MODE": "true" if run.canary else "",
        "AGENT_MODE": "prompt-server" if isinstance(run.task, TaskSpec) else "",
        "TOOLS_ENABLED": "true",
    }
    names = (",".join(run.tools_allowed), ",".join(run.tools_denied))
    limits = {name: value for name, value in zip(VARIABLES, names, strict=True) if value}
    keys = {
        name: SecretRef(name=model.auth_secret, key=name, optional=True, place=run.place)
        for name in _PROVIDER_KEYS
        if model.auth_secret
    }
    kept = (*_IDENTITY, *RESERVED, *limits)
    free = {name: value for name, value in run.env.items() if name not in kept}
    set_here = {name: value for name, value in defaults.items() if value and name not in free}
    return Environment(fixed={**fixed, **set_here, **limits}, given={**keys, **free})


def too_long(run: RunSpec) -> list[str]:
    """The variables, apart from the task, that no process could be started with."""
    given = for_agent(run)
    found: set[str] = set()
    for variables in (given.fixed, given.given, *(hook.env for hook in run.hooks.containers)):
        for name, text in variables.items():
            if isinstance(text, str) and len(text.encode("utf-8", "replace")) > LONGEST_VARIABLE:
                found.add(name)
    return sorted(found - {"TASK"})


def secrets_of(run: RunSpec) -> tuple[list[str], list[SecretRef]]:
    """The secrets of agent and hooks: the texts that are written in the run, and those that it refers to."""
    of_agent = {**for_agent(run).given, **run.env}
    environments = (of_agent, *(hook.env for hook in run.hooks.containers))
    refs = [value for environ in environments for value in environ.values() if isinstance(value, SecretRef)]
    return secrets_in(*environments), refs


def secret_names(run: RunSpec) -> list[str]:
    """The Secrets that a run names, for its variables and for its images, each once."""
    return list(dict.fromkeys((*(ref.name for ref in secrets_of(run)[1]), *run.image_pull_secrets)))


def task_input(run: RunSpec) -> str:
    """The content of `/ipc/input/task.json`."""
    return json.dumps({"task": plain(run.task)}, ensure_ascii=False)


def expanded(text: str, known: Mapping[str, str]) -> str:
    """A text of `command`, `args` or `env` as Kubernetes reads it: `$(NAME)` of a known variable, and `$$` for `$`."""

    def found(part: re.Match[str]) -> str:
        return "$" if part[1] is None else known.get(part[1], part[0])

    return _REFERENCE.sub(found, text)


def command_of(hook: ContainerHook, env: Environment, known: Mapping[str, str]) -> tuple[str, ...]:
    """`command` and `args` as they are run, where `known` are the variables of `env`.

    Text of the model never becomes part of a shell script: there it stays a variable, for the shell to expand.
    """
    kept = [name for name in _of_the_model(env) if name in known]
    return tuple(expanded(word, known) for word in _guarded(hook, kept))


def unread(hook: ContainerHook, env: Environment) -> tuple[str, ...]:
    """`command` and `args` for a cluster, which expands `$(NAME)` by itself, with the same guard as in `command_of`."""
    return _guarded(hook, _of_the_model(env))


def _guarded(hook: ContainerHook, kept: list[str]) -> tuple[str, ...]:
    argv = (*hook.command, *hook.args)
    script = script_at(argv)

    def guarded(part: re.Match[str]) -> str:
        return f"${{{part[1]}}}" if part[1] in kept else part[0]

    return tuple(
        _REFERENCE.sub(guarded, word) if index == script else word for index, word in enumerate(argv)
    )


def script_at(argv: tuple[str, ...]) -> int | None:
    """Where the script of `sh -c` stands."""
    start = 1 if argv[:1] and PurePosixPath(argv[0]).name in ("busybox", "env") else 0
    if len(argv) <= start or PurePosixPath(argv[start]).name not in _SHELLS:
        return None
    for index, word in enumerate(argv[start + 1 :], start + 1):
        if not word.startswith("-"):
            return None
        if "c" in word and not word.startswith("--"):
            return index + 1 if index + 1 < len(argv) else None
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Where a reference is looked up: `known`, by name and key, then the environment. `file` is for messages."""

    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    file: str = ""

    def value(self, ref: SecretRef) -> str | None:
        """The secret's text; None if an optional one is missing, FileError if one that is needed is."""
        found = self.known.get(ref.name, {}).get(ref.key)
        if found is None:
            found = self.environ.get(variable(ref))
        if found is None and not ref.optional:
            raise ref.place.problem(self._missing(ref))
        return found

    def _missing(self, ref: SecretRef) -> str:
        """Why a reference leads nowhere, and what would be right."""
        name = self.known.get(ref.name)
        if name is None:
            what = f"there is no Secret {ref.name!r}"
        else:
            what = f"Secret {ref.name!r} has no key {ref.key!r}; it has {', '.join(sorted(name)) or 'none'}"
        where = f"put {ref.name}/{ref.key}=... into {self.file or 'a file for --secrets'}"
        return f"{what}; {where}, or set {variable(ref)}"

    def all(self) -> list[str]:
        """Every value that is known here, for masking."""
        return [value for each in self.known.values() for value in each.values()]


def variable(ref: SecretRef) -> str:
    """The variable that holds it where no file does: `pagerduty` and `token` are PAGERDUTY_TOKEN."""
    return re.sub(r"[^A-Z0-9]", "_", f"{ref.name}_{ref.key}".upper())


def read_secrets(file: str | Path) -> dict[str, dict[str, str]]:
    """Lines of NAME/KEY=VALUE, or Secret objects in YAML."""
    text = text_of(file)
    found: dict[str, dict[str, str]] = {}
    pairs = _in_yaml(text, file) if _YAML.search(text) else _in_lines(text, file)
    for name, key, value in pairs:
        found.setdefault(name, {})[key] = value
    return found


def _of_the_model(env: Environment) -> list[str]:
    """The variables that hold text of the model: the answer, and those of the file that refer to it."""
    found = [_OF_THE_MODEL]
    for name, value in env.given.items():
        if isinstance(value, str) and any(f"$({each})" in value for each in found):
            found.append(name)
    return found


def _identity(run: RunSpec) -> dict[str, str]:
    return {"AGENT_RUN_ID": run.name, "INSTANCE_NAME": run.instance, "AGENT_NAMESPACE": run.namespace}


def _in_lines(text: str, file: str | Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            # Not the line itself: it may well hold a secret.
            raise FileError(f"this line is not NAME/KEY=VALUE; {_FORM}", file=file, line=number)
        name, key, value = found.groups()
        yield name, key, _unquoted(value.strip())


def _in_yaml(text: str, file: str | Path) -> Iterator[tuple[str, str, str]]:
    for document in load_all(text, file):
        if document.value is not None:
            yield from _of_object(document)


def _of_object(document: Document) -> Iterator[tuple[str, str, str]]:
    given = mapping(document.value)
    name = mapping(given.get("metadata")).get("name")
    if given.get("kind") != "Secret":
        raise document.problem(f"kind is {given.get('kind')!r}; a file of secrets has {_FORM}")
    if not isinstance(name, str) or not name:
        raise document.problem("a Secret has no metadata.name")
    for part, decoded in (("data", _from_base64), ("stringData", str)):
        for key, value in mapping(given.get(part)).items():
            if not isinstance(value, str):
                raise document.problem("must be a text; quote it", (part, key))
            try:
                yield name, str(key), decoded(value)
            except ValueError:
                raise document.problem(
                    "is not base64 of a text; write it under stringData as it is", (part, key)
                ) from None


def _from_base64(value: str) -> str:
    return base64.b64decode("".join(value.split()), validate=True).decode()


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
