"""The hooks of `.claude/settings.json`: groups of handlers by event, as declarations.

Only the entry that is wrong is dropped, and each is told with its file and line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from os import PathLike
from typing import Any, NamedTuple, cast

from hookline.claude.events import EVENTS, event_of, meant, point_of
from hookline.claude.tools import TOOLS, tool_named
from hookline.engine.context import Facts
from hookline.engine.declaration import Declaration, HookDeclaration
from hookline.engine.hook import Matcher, OnError
from hookline.errors import FileError, UsageError
from hookline.matcher import pattern

FORMAT = "claude"
MILLISECONDS_FROM = 1000
LONGEST_SESSION_END = 60.0

Json = dict[str, Any]
Path = tuple[str | int, ...]

_EXACT = re.compile(r"[A-Za-z0-9_]+(?:\s*[|,]\s*[A-Za-z0-9_]+)*\s*")
_RULE = re.compile(r"([A-Za-z][A-Za-z0-9_*-]*)(?:\((.*)\))?", re.DOTALL)
_NEVER_BLOCKS = ("Stop", "SubagentStop", "TaskCompleted", "TeammateIdle")
_NOT_RUN = {
    "prompt": "a prompt hook asks a model",
    "agent": "an agent hook runs another agent",
    "mcp_tool": "an mcp_tool hook calls an MCP server",
}
_SHELLS = {
    "sh": ("sh", "-c"),
    "bash": ("bash", "-c"),
    "powershell": ("pwsh", "-NoProfile", "-Command"),
}
_KEYS = frozenset(
    [
        "type",
        "command",
        "args",
        "timeout",
        "if",
        "once",
        "async",
        "asyncRewake",
        "rewakeMessage",
        "statusMessage",
        "onFailure",
        "shell",
        "url",
        "headers",
        "allowedEnvVars",
    ]
)


class Declared(NamedTuple):
    """What a file declares, and every entry of it that cannot be used."""

    declaration: Declaration
    problems: tuple[FileError, ...] = ()

    @property
    def hooks(self) -> tuple[HookDeclaration, ...]:
        return self.declaration.hooks


def declared(text: str, file: str | PathLike[str]) -> Declared:
    """The hooks of a settings file. `problems` are its wrong entries, `declaration.notes` what is only odd."""
    return _File(text, str(file)).read()


def whole_pattern(matcher: str | None) -> str | None:
    """A matcher of rule 5 as a pattern for whole names; None where it fits all; UsageError if it is no pattern."""
    if matcher is None or matcher in ("", "*"):
        return None
    if _EXACT.fullmatch(matcher.strip()):
        return "|".join(re.split(r"\s*[|,]\s*", matcher.strip()))
    # Searched, not anchored; checked by itself first, so that what is told is what was written.
    pattern(matcher)
    return f"(?s:.*)(?:{matcher})(?s:.*)"


def once(hooks: Iterable[HookDeclaration]) -> tuple[tuple[HookDeclaration, ...], tuple[str, ...]]:
    """The same command once for an event, in whatever groups and files it stands; and a note for each repetition.

    It stands where it came first, and is meant by all that any of its groups means. Another limit does not make
    it another command.
    """
    found: dict[str, HookDeclaration] = {}
    notes: list[str] = []
    for hook in hooks:
        same = json.dumps([hook.kind, dict(hook.params)], sort_keys=True, default=str)
        first = found.get(same)
        if first is None:
            found[same] = hook
            continue
        notes.append(f"{hook.source}: {hook.name} is declared already at {first.source}; it runs once")
        strictest = OnError.BLOCK if OnError.BLOCK in (first.on_error, hook.on_error) else first.on_error
        found[same] = replace(first, match=_either(first.match, hook.match), on_error=strictest)
    return tuple(found.values()), tuple(notes)


def selector(hook: HookDeclaration) -> Matcher:
    """Whether a hook of a settings file is meant by what happened: its event, and what its matcher is tested against."""
    event = hook.params["event"]
    fits = pattern(hook.match) if isinstance(hook.match, str) else None
    known: dict[str, bool] = {}

    def match(facts: Facts) -> bool:
        if _event_in(facts) != event:
            return False
        if fits is None:
            return True
        name = subject_of(facts, event)
        found = known.get(name)
        if found is None:
            found = known[name] = fits(name)
        return found

    return match


def subject_of(facts: Facts, event: str) -> str:
    """What the matcher of an event is tested against: a tool's name, a session's source, an agent's type."""
    subject = EVENTS[event].subject
    if subject == "tool_name":
        return facts.current_tool or ""
    native: Any = facts.native
    if isinstance(native, dict):
        value = cast("Json", native).get(subject or "", "")
        value = value if isinstance(value, str) else ""
        return value.rpartition("/")[2] if event == "FileChanged" else value
    defaults = {"source": "startup", "reason": "other", "agent_type": facts.agent or ""}
    return defaults.get(subject or "", "")


def applies(rule: str, tool: str, given: Any) -> bool:
    """Whether permission-rule text fits a call: `Bash(git *)`, `Write(*.txt)`, `WebFetch(domain:x)`, `mcp__x__*`."""
    name, inner = _rule(rule)
    if not fnmatchcase(tool, name):
        return False
    if inner is None or inner in ("", "*"):
        return True
    values = cast("Json", given) if isinstance(given, dict) else {}
    known = tool_named(tool)
    if known.kind == "shell":
        command = values.get(known.keys.get("command", "command"), "")
        return isinstance(command, str) and any(_fits_command(inner, part) for part in _commands(command))
    if inner.startswith("domain:"):
        host = re.sub(
            r"^[a-z]+://(?:[^/@]*@)?([^/:?#]*).*$", r"\1", str(values.get("url", "")), flags=re.I | re.S
        )
        wanted = inner.removeprefix("domain:").lower()
        return host.lower() == wanted or fnmatchcase(host.lower(), wanted)
    texts = [value for value in values.values() if isinstance(value, str)]
    path = values.get(known.keys.get("path", ""))
    return any(_fits_path(inner, text) for text in ([path] if isinstance(path, str) else texts))


def _either(one: Any, other: Any) -> str | None:
    if one is None or other is None:
        return None
    return str(one) if one == other else f"(?:{one})|(?:{other})"


def _event_in(facts: Facts) -> str | None:
    native: Any = facts.native
    name = cast("Json", native).get("hook_event_name") if isinstance(native, dict) else None
    if isinstance(name, str) and name in EVENTS:
        return name
    try:
        return event_of(facts)
    except UsageError:
        return None


def _rule(rule: str) -> tuple[str, str | None]:
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        raise UsageError(f"{rule!r} is not a permission rule; write it like Bash(git *) or Write(*.txt)")
    return found.group(1), found.group(2)


def _commands(text: str) -> list[str]:
    """The whole line and each command in it: a hook runs rather once too often than not at all."""
    parts = [part.strip(" \t(){}") for part in re.split(r"&&|\|\||[;|&\n]|\$\(|`", text)]
    return [text.strip(), *(part for part in parts if part)]


def _fits_command(inner: str, command: str) -> bool:
    if inner.endswith(":*"):
        start = inner.removesuffix(":*")
        return command == start or command.startswith(f"{start} ")
    # `git *` is also git alone.
    return fnmatchcase(command, inner) or (inner.endswith(" *") and command == inner[:-2])


def _fits_path(inner: str, path: str) -> bool:
    wanted = inner.removeprefix("./").replace("**/", "*").replace("**", "*")
    wanted = wanted.replace("//", "/", 1) if wanted.startswith("//") else wanted
    return fnmatchcase(path, wanted) or fnmatchcase(path, f"*/{wanted.lstrip('/')}")


class _File:
    """One file while it is read: what it declares, and what is wrong with it."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.file = file
        self.lines: Mapping[Path, int] = {}
        self.problems: list[FileError] = []
        self.notes: list[str] = []
        self.hooks: list[HookDeclaration] = []

    def read(self) -> Declared:
        settings = self._settings()
        groups = settings.get("hooks", {})
        if isinstance(groups, dict):
            for event, listed in cast("Json", groups).items():
                self._event(event, listed)
        else:
            self._wrong(("hooks",), f"is {_kind(groups)}; it must be an object of events")
        if settings.get("disableAllHooks") is True:
            self.notes.append(
                f"{self._place(('disableAllHooks',))}: disableAllHooks is true; no hook here runs"
            )
            self.hooks.clear()
        hooks, repeated = once(self.hooks)
        declaration = Declaration(
            format=FORMAT, source=self.file, hooks=hooks, notes=(*self.notes, *repeated)
        )
        return Declared(declaration, tuple(self.problems))

    def _settings(self) -> Json:
        try:
            value: Any = json.loads(self.text)
        except json.JSONDecodeError as exc:
            hint = "; the file is empty" if not self.text.strip() else ""
            self._fault(f"not JSON: {exc.msg} at column {exc.colno}{hint}", exc.lineno)
            return {}
        except (ValueError, RecursionError) as exc:
            self._fault(f"not JSON that can be read: {exc}", None)
            return {}
        if not isinstance(value, dict):
            self._fault(f"is {_kind(value)}; it must be an object with 'hooks'", 1)
            return {}
        self.lines, twice = _places(self.text)
        for path, line in twice:
            if path[0] == "hooks":
                self._fault("is there twice; only the last one counts, join them", line, _key(path))
        for key in cast("Json", value):
            if key != "hooks" and key.lower() in ("hook", "hooks"):
                self._wrong((key,), "is not a key of this file; did you mean 'hooks'?")
        return cast("Json", value)

    def _event(self, event: str, listed: Any) -> None:
        path: Path = ("hooks", event)
        if event not in EVENTS:
            self._wrong(path, f"is not an event of Claude Code; {meant(event)}")
        elif not isinstance(listed, list):
            self._wrong(path, f"is {_kind(listed)}; it must be a list of groups {_GROUP}")
        else:
            for index, group in enumerate(cast("list[Any]", listed)):
                self._group(event, (*path, index), group)

    def _group(self, event: str, path: Path, group: Any) -> None:
        if not isinstance(group, dict):
            self._wrong(path, f"is {_kind(group)}; it must be a group {_GROUP}")
            return
        known = cast("Json", group)
        if "hooks" not in known and ("command" in known or "type" in known):
            self._wrong(path, f'is a handler by itself; put it in a group {{"hooks": [...]}}, {_GROUP}')
            return
        self._odd_keys(path, known, frozenset({"matcher", "hooks", "description", "id"}))
        handlers = known.get("hooks")
        if not isinstance(handlers, list):
            self._wrong((*path, "hooks"), f"is {_kind(handlers)}; it must be a list of handlers")
            return
        try:
            match = self._match(event, path, known.get("matcher"))
        except UsageError as exc:
            self._wrong((*path, "matcher"), str(exc))
            return
        for index, handler in enumerate(cast("list[Any]", handlers)):
            where = (*path, "hooks", index)
            try:
                self._handler(event, where, match, handler)
            except UsageError as exc:
                self._wrong(where, str(exc))

    def _match(self, event: str, path: Path, matcher: Any) -> str | None:
        if matcher is None:
            return None
        if not isinstance(matcher, str):
            raise UsageError(f"is {_kind(matcher)}; it must be a string such as 'Bash|Write'")
        where = self._place((*path, "matcher"))
        if EVENTS[event].subject is None:
            if matcher not in ("", "*"):
                self.notes.append(
                    f"{where}: {event} has nothing to match; the matcher {matcher!r} is ignored"
                )
            return None
        whole = whole_pattern(matcher)
        if whole is not None and EVENTS[event].subject == "tool_name":
            self._tell_of_near_misses(where, matcher)
        return whole

    def _tell_of_near_misses(self, where: str, matcher: str) -> None:
        if not _EXACT.fullmatch(matcher.strip()):
            return
        for name in re.split(r"\s*[|,]\s*", matcher.strip()):
            hint = _meant_tool(name)
            if hint:
                self.notes.append(f"{where}: no tool of Claude Code is called {name!r}; {hint}")

    def _handler(self, event: str, path: Path, match: str | None, handler: Any) -> None:
        if not isinstance(handler, dict):
            raise UsageError(f"is {_kind(handler)}; it must be a handler {_HANDLER}")
        known = cast("Json", handler)
        kind = known.get("type")
        if isinstance(kind, str) and kind in _NOT_RUN:
            raise UsageError(f"{_NOT_RUN[kind]}, which hookline does not do in this version; it does not run")
        if kind not in ("command", "http"):
            raise UsageError(f"type is {kind!r}; known: command, http")
        self._odd_keys(path, known, _KEYS)
        params = {"dialect": FORMAT, "event": event} | (
            _command(known) if kind == "command" else _request(known)
        )
        params |= self._conditions(event, path, known)
        name = f"{event}: {_name(params)}{' (async)' if 'async' in params else ''}"
        self.hooks.append(
            HookDeclaration(
                name=name,
                points=(point_of(event),),
                kind=kind,
                params=params,
                match=match,
                timeout=self._timeout(event, path, known),
                on_error=self._on_error(event, path, known),
                source=self._place(path),
            )
        )

    def _conditions(self, event: str, path: Path, known: Json) -> Json:
        found: Json = {}
        if "if" in known:
            rule = known["if"]
            if not isinstance(rule, str):
                raise UsageError(f"if is {_kind(rule)}; it must be a permission rule such as 'Bash(git *)'")
            if EVENTS[event].subject != "tool_name":
                raise UsageError(
                    f"if is {rule!r}, but {event} has no tool call to test; the hook would never run"
                )
            _rule(rule)
            found["if"] = rule
        if "once" in known:
            self.notes.append(
                f"{self._place((*path, 'once'))}: once counts only in a skill; here it is ignored"
            )
        for key in ("async", "asyncRewake"):
            if known.get(key, False) not in (True, False):
                raise UsageError(f"{key} is {_kind(known[key])}; it must be true or false")
        if self._is_async(known):
            found["async"] = True
            self._tell_of_async(path, known)
        return found

    def _tell_of_async(self, path: Path, known: Json) -> None:
        if known.get("asyncRewake") is True:
            self.notes.append(
                f"{self._place((*path, 'asyncRewake'))}: asyncRewake wakes no agent here; the hook runs as with"
                " async, and what it says is only on record"
            )
        if "timeout" in known:
            self.notes.append(
                f"{self._place((*path, 'timeout'))}: a timeout is not kept for an async hook, which ends with the"
                " run at the latest"
            )

    def _timeout(self, event: str, path: Path, known: Json) -> float:
        if "timeout" not in known:
            return EVENTS[event].timeout
        value = known["timeout"]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"timeout is {value!r}; give seconds greater than 0")
        where = self._place((*path, "timeout"))
        if value >= MILLISECONDS_FROM:
            self.notes.append(
                f"{where}: timeout is {value:g} seconds ({value / 60:.0f} minutes); if these are milliseconds,"
                f" write {value / 1000:g}"
            )
        if event == "SessionEnd" and value > LONGEST_SESSION_END:
            self.notes.append(f"{where}: timeout is {value:g}; a SessionEnd hook has at most 60 seconds")
            return LONGEST_SESSION_END
        return float(value)

    def _on_error(self, event: str, path: Path, known: Json) -> OnError:
        wanted = known.get("onFailure", "continue")
        if wanted not in ("continue", "block", "ignore", "allow"):
            raise UsageError(f"onFailure is {wanted!r}; known: block")
        if wanted != "block":
            return OnError.CONTINUE
        if event in _NEVER_BLOCKS or self._is_async(known):
            what = "an async hook" if event not in _NEVER_BLOCKS else event
            self.notes.append(f"{self._place((*path, 'onFailure'))}: onFailure does nothing for {what}")
            return OnError.CONTINUE
        return OnError.BLOCK

    @staticmethod
    def _is_async(known: Json) -> bool:
        return known.get("async") is True or known.get("asyncRewake") is True

    def _odd_keys(self, path: Path, known: Json, keys: frozenset[str]) -> None:
        for key in known:
            if key not in keys:
                near = get_close_matches(key.lower(), keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(keys))}"
                self.notes.append(
                    f"{self._place((*path, key))}: {key!r} is no key here and is ignored; {hint}"
                )

    def _wrong(self, path: Path, message: str) -> None:
        self._fault(message, self._line(path), _key(path))

    def _fault(self, message: str, line: int | None, key: str | None = None) -> None:
        self.problems.append(FileError(message, file=self.file, line=line, key=key))

    def _line(self, path: Path) -> int | None:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def _place(self, path: Path) -> str:
        return f"{self.file}:{self._line(path) or 1}"


_HANDLER = '{"type": "command", "command": "..."}'
_GROUP = '{"matcher": "Bash", "hooks": [' + _HANDLER + "]}"


def _command(known: Json) -> Json:
    command = known.get("command")
    if not isinstance(command, str) or not command.strip():
        raise UsageError(f"command is {command!r}; it must be the text of a command")
    if "args" not in known:
        shell = known.get("shell", "sh")
        if shell not in _SHELLS:
            raise UsageError(f"shell is {shell!r}; known: bash, powershell")
        return {"argv": [*_SHELLS[shell], command], "command": command}
    args = known["args"]
    if not isinstance(args, list) or not all(isinstance(item, str) for item in cast("list[Any]", args)):
        raise UsageError(f"args is {args!r}; it must be a list of strings")
    return {"argv": [command, *cast("list[str]", args)]}


def _request(known: Json) -> Json:
    url = known.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise UsageError(f"url is {url!r}; it must start with http:// or https://")
    headers = known.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in cast("Json", headers).values()):
        raise UsageError(f"headers is {headers!r}; it must be an object of strings")
    allowed = known.get("allowedEnvVars", [])
    if not isinstance(allowed, list) or not all(isinstance(v, str) for v in cast("list[Any]", allowed)):
        raise UsageError(f"allowedEnvVars is {allowed!r}; it must be a list of names")
    return {"url": url, "headers": headers, "variables": allowed}


def _name(params: Json) -> str:
    text: str = params.get("command") or params.get("url") or " ".join(params["argv"])
    return text if len(text) <= 60 else f"{text[:57]}..."


def _meant_tool(name: str) -> str | None:
    """What was meant by a name that is almost a tool's; other names may be tools that we do not know."""
    tools = TOOLS["claude"]
    if name in tools:
        return None
    if name.startswith("mcp__"):
        return (
            f"to match every tool of that server write {name + '__.*'!r}" if name.count("__") == 1 else None
        )
    lower = {known.lower(): known for known in tools}
    if name.lower() in lower:
        return f"did you mean {lower[name.lower()]!r}?"
    begun = [known for known in tools if known.startswith(name)]
    near = begun or get_close_matches(name, tools, n=1, cutoff=0.8)
    return f"did you mean {near[0]!r}?" if near else None


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


# Not by `lines`: that reads JSON as YAML, which refuses some of it (a colon on the next line, half a surrogate pair), and
# a key that comes twice anywhere. Claude Code reads such a file, so its guards must not be lost here.
def _places(text: str) -> tuple[dict[Path, int], list[tuple[Path, int]]]:
    """The line of each value of a JSON text known to be right, by its path; and the keys that come twice."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    lines: dict[Path, int] = {}
    twice: list[tuple[Path, int]] = []
    path: list[str | int] = []
    for token, line, after in _tokens(text, starts):
        if token in "}]":
            path.pop()
        elif token == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
        elif token == ":":
            continue
        elif after == ":":
            path[-1] = cast("str", json.loads(token))
            if tuple(path) in lines:
                twice.append((tuple(path), line))
            lines[tuple(path)] = line
            continue
        else:
            lines.setdefault(tuple(path), line)
            if token == "{":
                path.append("")
            elif token == "[":
                path.append(0)
    return lines, twice


def _tokens(text: str, starts: list[int]) -> Iterator[tuple[str, int, str]]:
    """Each token with its line, and the token after it."""
    before: tuple[str, int] | None = None
    for found in _TOKEN.finditer(text):
        token = found.group()
        if before is not None:
            yield *before, token
        before = token, bisect_right(starts, found.start())
    if before is not None:
        yield *before, ""


def _key(path: Path) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def _kind(value: Any) -> str:
    kinds = {
        "dict": "an object",
        "list": "a list",
        "str": "a string",
        "bool": "true or false",
        "int": "a number",
        "float": "a number",
    }
    return kinds.get(value.__class__.__name__, "missing")
