"""WORKFLOW.md of Symphony: YAML front matter for a service that works on issues, and its prompt in Markdown.

Everything is read into plain values with their defaults; nothing here starts, watches or asks anything. What is
wrong is a problem with its line and key, and the field then has its default; what is only odd is a warning.

`agent` has keys of our own beside Symphony's: `kind` (codex, command or builtin; codex if not given), `command` for
a command-line agent (`{prompt}` is where the prompt goes, else it is on standard input), and `model` and `tools` for
the built-in one. For every kind `codex.turn_timeout_ms` is how long a turn may be silent.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple, cast

from hookline.engine.declaration import Declaration, HookDeclaration
from hookline.engine.hook import OnError
from hookline.engine.point import Point
from hookline.errors import FileError
from hookline.source import MAX_BYTES, Document, FrontMatter, Trail, Wrong, load, without_lines
from hookline.table import meant

FILE = "WORKFLOW.md"
POINTS: Mapping[str, Point] = {
    "after_create": Point.WORKSPACE_START,
    "before_run": Point.RUN_START,
    "after_run": Point.RUN_END,
    "before_remove": Point.WORKSPACE_END,
}
"""The four hooks, and where they stand."""
DEFAULTS: Mapping[Point, OnError] = {
    point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point
}
"""What follows when a hook of this file broke."""
AGENTS = ("codex", "command", "builtin")
TRACKERS = ("folder", "memory", "linear", "github")
DEFAULT_TIMEOUT = 60.0
"""Seconds for a hook where the file does not say, or says zero or less."""

_ACTIVE = ("Todo", "In Progress")
_TERMINAL = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
_STATES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"github": (("open",), ("closed",))}
"""Active and terminal states of trackers that have others than those."""


class WorkflowError(FileError):
    """WORKFLOW.md is wrong. `kind` is one word for the record.

    Kinds: missing_workflow_file, workflow_parse_error, workflow_front_matter_not_a_map, invalid_workflow_config,
    template_parse_error, template_render_error.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        file: str | PathLike[str],
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, key=key)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """Where issues come from. `provider` is the tracker's own; a `$NAME` in it is still that (see `resolved`)."""

    kind: str | None = None
    provider: Mapping[str, Any] = field(default_factory=dict[str, Any])
    required_labels: tuple[str, ...] = ()
    active_states: tuple[str, ...] = _ACTIVE
    terminal_states: tuple[str, ...] = _TERMINAL

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables that `provider` refers to."""
        return frozenset(_variables(self.provider))


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    interval: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A shell script and the line of its key."""

    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The four scripts, and the seconds that each may take."""

    after_create: Script | None = None
    before_run: Script | None = None
    after_run: Script | None = None
    before_remove: Script | None = None
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """How many agents work at once and for how long, and which one it is."""

    max_concurrent_agents: int = 10
    max_turns: int = 20
    max_retry_backoff: float = 300.0
    max_concurrent_agents_by_state: Mapping[str, int] = field(default_factory=dict[str, int])
    kind: str = "codex"
    command: tuple[str, ...] = ()
    model: str = ""
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Codex:
    """What is handed on to Codex, and its limits in seconds. No `stall_timeout` means that a stall is not looked for."""

    command: str = "codex app-server"
    approval_policy: Any = None
    thread_sandbox: Any = None
    turn_sandbox_policy: Any = None
    turn_timeout: float = 3600.0
    read_timeout: float = 5.0
    stall_timeout: float | None = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the service can be seen; no port, no listener. 0 is any free port."""

    port: int | None = None
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One WORKFLOW.md as it was read. Paths are absolute; a prompt begins in `prompt_line`."""

    file: str
    prompt: str = ""
    prompt_line: int = 1
    root: str = ""
    tracker: Tracker = Tracker()
    polling: Polling = Polling()
    hooks: Hooks = Hooks()
    agent: Agent = Agent()
    codex: Codex = Codex()
    server: Server = Server()
    warnings: tuple[FileError, ...] = ()
    problems: tuple[WorkflowError, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)

    def checked(self) -> Workflow:
        """Itself, where nothing is wrong with it; else the first problem is raised."""
        if not self.problems:
            return self
        first, *rest = self.problems
        more = f" (and {len(rest)} more: hookline check {first.file})" if rest else ""
        raise WorkflowError(
            f"{first.message}{more}", kind=first.kind, file=first.file, line=first.line, key=first.key
        ) from first


def workflow_file(given: str | PathLike[str] | None, cwd: str | PathLike[str]) -> str:
    """The file that was named, else WORKFLOW.md in the current folder."""
    return os.path.join(cwd, given) if given else os.path.join(cwd, FILE)


def read_file(file: str | PathLike[str], env: Mapping[str, str], *, strict: bool = False) -> Workflow:
    """A file's content; one that cannot be read as a whole is a WorkflowError."""
    try:
        with open(file, "rb") as opened:
            text = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise WorkflowError("there is no such file", kind="missing_workflow_file", file=file) from None
    except (OSError, ValueError) as exc:
        why = f"cannot be read: {getattr(exc, 'strerror', None) or exc}"
        raise WorkflowError(why, kind="missing_workflow_file", file=file) from exc
    if len(text) > MAX_BYTES:
        why = f"is larger than {MAX_BYTES // 1_000_000} MB; this is not a workflow"
        raise WorkflowError(why, kind="workflow_parse_error", file=file)
    return read(text, file, env, strict=strict)


def read(
    text: str | bytes, file: str | PathLike[str], env: Mapping[str, str], *, strict: bool = False
) -> Workflow:
    """A text's content. With `strict` the first problem is raised, and what is only tolerated is one."""
    reading = _Reading(os.path.abspath(file), env, strict=strict)
    parts = _split(text, file, reading)
    value = parts.document.value
    if value is not None and not isinstance(value, Mapping):
        what = "a list" if isinstance(value, list) else f"one value, {value!r}"
        raise WorkflowError(
            f"the front matter is {what}; write keys and values, as in `hooks:`",
            kind="workflow_front_matter_not_a_map",
            file=file,
            line=parts.document.line,
        )
    reading.document = parts.document
    found = reading.sections(cast("Mapping[str, Any]", value or {}))
    before = parts.body[: len(parts.body) - len(parts.body.lstrip())]
    workflow = Workflow(
        file=reading.file,
        prompt=parts.body.strip(),
        prompt_line=parts.body_line + before.count("\n"),
        warnings=tuple(reading.warnings),
        problems=tuple(reading.problems),
        **found,
    )
    return workflow.checked() if strict else workflow


def missing_for_dispatch(workflow: Workflow) -> tuple[WorkflowError, ...]:
    """What a service cannot begin without, although everything that is written is right."""
    found: list[tuple[str, str]] = []
    if workflow.tracker.kind is None:
        found.append(("tracker.kind", f"is missing; give one of {', '.join(TRACKERS)}"))
    if workflow.agent.kind == "command" and not workflow.agent.command:
        found.append(("agent.command", 'is missing; give the program of the agent, such as "claude -p"'))
    if workflow.agent.kind == "builtin" and not workflow.agent.model:
        found.append(("agent.model", "is missing; give provider/name, such as openai/gpt-5"))
    return tuple(
        WorkflowError(message, kind="invalid_workflow_config", file=workflow.file, key=key)
        for key, message in found
    )


def declaration(workflow: Workflow) -> Declaration:
    """What the file says of hooks, for `explain` and for the record of a run."""
    scripts = {name: cast("Script | None", getattr(workflow.hooks, name)) for name in POINTS}
    return Declaration(
        format="symphony",
        source=workflow.file,
        hooks=tuple(
            HookDeclaration(
                name=name,
                points=(POINTS[name],),
                kind="shell",
                params={"script": script.text, "shell": ["sh", "-lc"]},
                timeout=workflow.hooks.timeout,
                on_error=DEFAULTS[POINTS[name]],
                source=f"{workflow.file}:{script.line}",
            )
            for name, script in scripts.items()
            if script is not None
        ),
    )


def resolved(value: Any, env: Mapping[str, str]) -> Any:
    """A value whose whole text is `$NAME` as that variable's value; None where it is unset or empty."""
    name = _reference(value)
    return value if name is None else env.get(name) or None


_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_NEWLINE = re.compile(r"\r\n?")
_NUMBER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_LONGEST_WAIT = 10 * 365 * 86400 * 1000


def _reference(value: Any) -> str | None:
    found = _NAME.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else None


def _variables(value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        return [name for item in cast("Mapping[str, Any]", value).values() for name in _variables(item)]
    if isinstance(value, list):
        return [name for item in cast("list[Any]", value) for name in _variables(item)]
    name = _reference(value)
    return [name] if name else []


def _split(text: str | bytes, file: str | PathLike[str], reading: _Reading) -> FrontMatter:
    """Front matter and body. Where the first has no end all of it is front matter, as Symphony reads it."""
    try:
        known = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as exc:
        line = text[: exc.start].count(b"\n") + 1 if isinstance(text, bytes) else None
        message = f"this is not UTF-8: the byte 0x{exc.object[exc.start]:02x}"
        raise WorkflowError(message, kind="workflow_parse_error", file=file, line=line) from None
    known = _NEWLINE.sub("\n", known)
    first, *rest = known.split("\n")
    if first.rstrip() != "---":
        return FrontMatter(Document(None, str(file)), known, 1)
    end = next((number for number, line in enumerate(rest) if line.rstrip() == "---"), None)
    no_end = "the front matter that begins here has no end; close it with a line ---"
    try:
        # The first line stays, empty: line numbers are those of the file.
        document = load("\n".join(["", *rest[:end], ""]), file)
    except FileError as exc:
        message, line = (exc.message, exc.line) if end is not None else (f"{no_end} ({exc.message})", 1)
        raise WorkflowError(message, kind="workflow_parse_error", file=file, line=line, key=exc.key) from exc
    if end is not None:
        return FrontMatter(document, "\n".join(rest[end + 1 :]), end + 3)
    reading.doubt(
        FileError(f"{no_end}; all of the file is taken for it, and there is no prompt", file=file, line=1)
    )
    return FrontMatter(document, "", len(rest) + 1)


class _Reading:
    """One reading of one file: what is odd and what is wrong is gathered, and reading goes on."""

    def __init__(self, file: str, env: Mapping[str, str], *, strict: bool) -> None:
        self.file = file
        self.env = env
        self.strict = strict
        self.document = Document(None, file)
        self.warnings: list[FileError] = []
        self.problems: list[WorkflowError] = []

    def sections(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self._tell_unknown(given, KEYS, ())
        values = {name: self._section(name, given.get(name)) for name in KEYS}
        tracker: dict[str, Any] = values["tracker"]
        active, terminal = _STATES.get(tracker.get("kind") or "", (_ACTIVE, _TERMINAL))
        tracker = {"active_states": active, "terminal_states": terminal, **tracker}
        root: Any = values["workspace"].get("root")
        return {
            "root": root or self._default_root(),
            "tracker": Tracker(**tracker),
            "polling": Polling(**values["polling"]),
            "hooks": Hooks(**values["hooks"]),
            "agent": Agent(**values["agent"]),
            "codex": Codex(**values["codex"]),
            "server": Server(**values["server"]),
        }

    def wrong(self, message: str, trail: Trail) -> None:
        problem = self.document.problem(message, trail)
        self.problems.append(
            WorkflowError(
                message, kind="invalid_workflow_config", file=self.file, line=problem.line, key=problem.key
            )
        )

    def odd(self, message: str, trail: Trail) -> None:
        """A warning, which is a problem to those who want it strict."""
        problem = self.document.problem(message, trail)
        self.doubt(FileError(message, file=self.file, line=problem.line, key=problem.key))

    def doubt(self, warning: FileError) -> None:
        self.warnings.append(warning)
        if self.strict:
            kind = "invalid_workflow_config"
            self.problems.append(
                WorkflowError(
                    warning.message, kind=kind, file=warning.file, line=warning.line, key=warning.key
                )
            )

    def _section(self, name: str, given: Any) -> dict[str, Any]:
        keys = KEYS[name]
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            self.wrong(f"is {_shown(given)}; give keys and values: {', '.join(keys)}", (name,))
            return {}
        values = dict(cast("Mapping[str, Any]", given))
        if name == "tracker":
            values = self._with_provider(values)
        self._tell_unknown(values, keys, (name,))
        found: dict[str, Any] = {}
        for key, known in keys.items():
            if values.get(key) is not None:
                self._read_into(found, known, values[key], (name, key))
        return found

    def _read_into(self, found: dict[str, Any], known: _Key, value: Any, trail: tuple[str, str]) -> None:
        try:
            answer = known.read(_Value(self, value, trail))
        except Wrong as exc:
            self.wrong(exc.message, (*trail, *exc.trail))
            return
        if answer is not None or known.none_counts:
            found[known.field or trail[1]] = answer

    def _with_provider(self, values: dict[str, Any]) -> dict[str, Any]:
        """Keys that stood beside `kind` in the first Symphony go where they belong today."""
        provider = values.get("provider")
        if provider is not None and not isinstance(provider, Mapping):
            return values
        inner = dict(cast("Mapping[str, Any]", provider or {}))
        for key in _ONCE_BESIDE:
            if key in values:
                self.odd(
                    f"belongs under tracker.provider today; it is taken as {key} there", ("tracker", key)
                )
                inner.setdefault(key, values.pop(key))
        return {**values, "provider": inner} if inner else values

    def _tell_unknown(self, given: Mapping[str, Any], known: Mapping[str, Any], trail: Trail) -> None:
        for key in given:
            if key in known or key.startswith("x-") or (not trail and key in _HERE_WITHOUT_EFFECT):
                continue
            hint = _INSTEAD.get((*trail, key)) or _INSTEAD.get((key,)) or meant(key, known)
            self._warn_unknown(f"unknown key, which has no effect{hint}", (*trail, key))
        for key, read in _HERE_WITHOUT_EFFECT.items():
            if not trail and given.get(key) is not None:
                read(_Value(self, given[key], (key,)))

    def _warn_unknown(self, message: str, trail: Trail) -> None:
        # Unknown keys are ignored by Symphony's own rule, so that newer files run; strict does not change that.
        problem = self.document.problem(message, trail)
        self.warnings.append(FileError(message, file=self.file, line=problem.line, key=problem.key))

    def _default_root(self) -> str:
        return os.path.join(self.env.get("TMPDIR") or "/tmp", "symphony_workspaces")


class _Value(NamedTuple):
    """One value that is being read, and where it stands."""

    reading: _Reading
    value: Any
    trail: Trail

    def odd(self, message: str, inner: Trail = ()) -> None:
        self.reading.odd(message, (*self.trail, *inner))


class _Key(NamedTuple):
    """One key: what it says, what reads it, and the name of its field where that is another."""

    says: str
    read: Callable[[_Value], Any]
    field: str = ""
    none_counts: bool = False


def _shown(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, Mapping) else repr(value)


def _whole(value: Any, wanted: str) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(f"is {_shown(value)}; give {wanted}")
    return value


def _positive(wanted: str) -> Callable[[_Value], int]:
    def read_number(given: _Value) -> int:
        number = _whole(given.value, wanted)
        if number <= 0:
            raise Wrong(f"is {number}; give {wanted}, more than 0")
        return number

    return read_number


def _milliseconds(given: _Value) -> float:
    number = _positive("milliseconds, as in 30000")(given)
    if number > _LONGEST_WAIT:
        raise Wrong(f"is {number}, which is more than ten years; give milliseconds, as in 30000")
    return number / 1000


def _hook_limit(given: _Value) -> float:
    number = _whole(given.value, "milliseconds, as in 60000")
    if number > 0:
        return _milliseconds(given)
    given.odd(f"is {number}; a limit is more than 0, so the default of {DEFAULT_TIMEOUT * 1000:.0f} holds")
    return DEFAULT_TIMEOUT


def _stall(given: _Value) -> float | None:
    number = _whole(given.value, "milliseconds, as in 300000, or 0 for no limit")
    return _milliseconds(given) if number > 0 else None


def _script(given: _Value) -> Script | None:
    value = given.value
    if not isinstance(value, str):
        raise Wrong(f"is {_shown(value)}; give a shell script, as a block behind `{given.trail[-1]}: |`")
    if "\0" in value:
        raise Wrong("has a NUL character in it, which no shell takes")
    if not value.strip():
        return None
    return Script(text=value, line=given.reading.document.problem("", given.trail).line or 1)


def _text(given: _Value) -> str:
    value = given.value
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"is {_shown(value)}; give a text")
    return value


def _texts(given: _Value) -> tuple[str, ...]:
    value = given.value
    if not isinstance(value, list):
        raise Wrong(f"is {_shown(value)}; give a list of texts: [one, two]")
    items = cast("list[Any]", value)
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise Wrong(
                f"is {_shown(item)}; give a text, in quotes if it looks like something else", (index,)
            )
    return tuple(item.strip() for item in items)


def _labels(given: _Value) -> tuple[str, ...]:
    labels = tuple(label.lower() for label in _texts(given))
    if "" in labels:
        given.odd("has a blank label, which no issue has: nothing will be worked on", (labels.index(""),))
    return labels


def _tracker_kind(given: _Value) -> str:
    kind = _text(given).strip()
    if kind not in TRACKERS:
        known = kind in ("jira", "asana", "gitlab")
        hint = f"; not in this version; known: {', '.join(TRACKERS)}" if known else meant(kind, TRACKERS)
        raise Wrong(f"unknown tracker {kind!r}{hint}")
    return kind


def _agent_kind(given: _Value) -> str:
    kind = _text(given).strip()
    if kind not in AGENTS:
        raise Wrong(f"unknown agent {kind!r}{meant(kind, AGENTS)}")
    return kind


def _model(given: _Value) -> str:
    model = _text(given).strip()
    provider, _, name = model.partition("/")
    if not provider or not name:
        raise Wrong(f"is {model!r}; give provider/name, such as openai/gpt-5")
    return model


def _mapping(given: _Value) -> dict[str, Any]:
    value = given.value
    if not isinstance(value, Mapping):
        raise Wrong(f"is {_shown(value)}; give keys and values")
    return {key: item for key, item in without_lines(value).items() if item is not None}


def _by_state(given: _Value) -> dict[str, int]:
    """Limits by state in small letters. A bad entry costs only itself: the overall limit holds there."""
    value = given.value
    if not isinstance(value, Mapping):
        raise Wrong(f"is {_shown(value)}; give a number for each state, as in `In Progress: 3`")
    found: dict[str, int] = {}
    for state, limit in cast("Mapping[str, Any]", value).items():
        try:
            number = _positive("a number")(given._replace(value=limit))
        except Wrong as exc:
            given.reading.odd(f"{exc.message}; it is left out", (*given.trail, state))
            continue
        found[state.strip().lower()] = number
    return found


def _root(given: _Value) -> str | None:
    """The root as an absolute path; None for the default, also where the variable is not set."""
    if not isinstance(given.value, str):
        raise Wrong(f"is {_shown(given.value)}; give a folder, or $NAME for one in a variable")
    value = resolved(given.value.strip(), given.reading.env)
    if not value:
        if given.value.strip():
            given.odd(f"{given.value} is not set; the default folder is used")
        return None
    if "\0" in value:
        raise Wrong("has a NUL character in it")
    if value == "~" or value.startswith("~/"):
        value = (given.reading.env.get("HOME") or os.path.expanduser("~")) + value[1:]
    elif value.startswith("~"):
        value = os.path.expanduser(value)
    return os.path.normpath(os.path.join(os.path.dirname(given.reading.file), value))


def _shell_text(given: _Value) -> str:
    if not isinstance(given.value, str) or not given.value.strip():
        raise Wrong(f"is {_shown(given.value)}; give a command, such as codex app-server")
    return given.value


def _argv(given: _Value) -> tuple[str, ...]:
    value = given.value
    if isinstance(value, list):
        words = _arguments(cast("list[Any]", value))
    elif isinstance(value, str):
        words = _split_words(value)
    else:
        raise Wrong(f"is {_shown(value)}; give a command, or a list of its arguments")
    if not words or not words[0].strip():
        raise Wrong("names no program")
    if any("\0" in word for word in words):
        raise Wrong("has a NUL character in it")
    if os.path.basename(words[0]) in _SHELLS and any("{prompt}" in word for word in words[1:3]):
        raise Wrong(
            'would make the prompt part of a script; write ["sh", "-c", "... \\"$1\\"", "sh", "{prompt}"]'
        )
    return words


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _arguments(items: list[Any]) -> tuple[str, ...]:
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise Wrong(f"is {_shown(item)}; put it in quotes", (index,))
    return tuple(items)


def _split_words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
        tokens = list(shlex.shlex(text, posix=False, punctuation_chars=True))
    except ValueError as exc:
        raise Wrong(f"cannot be split into arguments: {str(exc).lower()}; give a list of them") from None
    special = next((token for token in tokens if set(token) <= set("();<>|&")), None)
    if special:
        raise Wrong(f'is started without a shell, so {special!r} has no effect; write ["sh", "-c", "..."]')
    return words


def _port(given: _Value) -> int:
    number = _whole(given.value, "a port, or 0 for any that is free")
    if not 0 <= number <= 65535:
        raise Wrong(f"is {number}; give a port from 0 (any that is free) to 65535")
    return number


def _anything(given: _Value) -> Any:
    return without_lines(given.value)


def _worker(given: _Value) -> None:
    value = given.value
    hosts = cast("Mapping[str, Any]", value).get("ssh_hosts") if isinstance(value, Mapping) else None
    if hosts:
        # Work that was meant for another machine must not quietly be done on this one.
        given.reading.wrong(
            "workers over SSH are not in this version; take it out to run here", ("worker", "ssh_hosts")
        )


def _observability(given: _Value) -> None:
    pass  # how often another program redraws its terminal


_HERE_WITHOUT_EFFECT: Mapping[str, Callable[[_Value], None]] = {
    "worker": _worker,
    "observability": _observability,
}
_ONCE_BESIDE = ("endpoint", "api_key", "project_slug", "assignee")
_INSTEAD: Mapping[Trail, str] = {
    ("hooks", "timeout"): "; did you mean timeout_ms? It is in milliseconds",
    ("hooks", "setup"): "; did you mean after_create?",
    ("hooks", "on_create"): "; did you mean after_create?",
    ("hooks", "pre_run"): "; did you mean before_run?",
    ("hooks", "post_run"): "; did you mean after_run?",
    ("hooks", "cleanup"): "; did you mean before_remove?",
    ("polling", "interval"): "; did you mean interval_ms? It is in milliseconds",
    ("workspace", "path"): "; did you mean root?",
    ("workspace", "dir"): "; did you mean root?",
    ("after_create",): "; did you mean hooks.after_create?",
    ("before_run",): "; did you mean hooks.before_run?",
    ("after_run",): "; did you mean hooks.after_run?",
    ("before_remove",): "; did you mean hooks.before_remove?",
    ("timeout_ms",): "; did you mean hooks.timeout_ms?",
    ("max_turns",): "; did you mean agent.max_turns?",
}
"""Near misses in meaning or in place, which the spelling does not give away."""

KEYS: Mapping[str, Mapping[str, _Key]] = {
    "tracker": {
        "kind": _Key("Which tracker: folder, memory, linear or github.", _tracker_kind),
        "provider": _Key("The tracker's own settings; `$NAME` stands for a variable.", _mapping),
        "required_labels": _Key("Labels that an issue must have, all of them.", _labels),
        "active_states": _Key("States in which an issue is worked on.", _texts),
        "terminal_states": _Key("States in which an issue is over and its workspace goes.", _texts),
    },
    "polling": {"interval_ms": _Key("How often the tracker is asked; 30000.", _milliseconds, "interval")},
    "workspace": {"root": _Key("The folder that holds the workspaces; a path or `$NAME`.", _root)},
    "hooks": {
        "after_create": _Key("Runs once, when a workspace was made; fatal.", _script),
        "before_run": _Key("Runs before each attempt; fatal to it.", _script),
        "after_run": _Key("Runs after each attempt, however it ended.", _script),
        "before_remove": _Key("Runs before a workspace is deleted.", _script),
        "timeout_ms": _Key("How long each of them may take; 60000.", _hook_limit, "timeout"),
    },
    "agent": {
        "max_concurrent_agents": _Key("How many work at once; 10.", _positive("a number")),
        "max_turns": _Key("Turns in one attempt; 20.", _positive("a number")),
        "max_retry_backoff_ms": _Key(
            "The longest wait before a retry; 300000.", _milliseconds, "max_retry_backoff"
        ),
        "max_concurrent_agents_by_state": _Key("How many work at once on issues of a state.", _by_state),
        "kind": _Key("Which agent: codex, command or builtin.", _agent_kind),
        "command": _Key("The command-line agent, one text or a list; {prompt} is the prompt.", _argv),
        "model": _Key("The built-in agent's model: provider/name.", _model),
        "tools": _Key("The built-in agent's tools; all that are ready if not given.", _texts),
    },
    "codex": {
        "command": _Key("What starts Codex, for a shell.", _shell_text),
        "approval_policy": _Key("Handed on to Codex.", _anything),
        "thread_sandbox": _Key("Handed on to Codex.", _anything),
        "turn_sandbox_policy": _Key("Handed on to Codex.", _anything),
        "turn_timeout_ms": _Key("How long a turn may be silent; 3600000.", _milliseconds, "turn_timeout"),
        "read_timeout_ms": _Key("How long a response may take; 5000.", _milliseconds, "read_timeout"),
        "stall_timeout_ms": _Key(
            "After which silence an attempt counts as stalled; 300000, 0 for never.",
            _stall,
            "stall_timeout",
            True,
        ),
    },
    "server": {
        "port": _Key("The port of the service's own page; 0 is any that is free.", _port),
        "host": _Key("The address it listens at; 127.0.0.1.", _text),
    },
}
"""Every key that has an effect."""
