"""protect_hookline: asks before an agent changes what guards it: hook files, agents' settings, hookline's own files.

Reading is free. A program that is not known to read only is taken for one that writes, and its words, its code and its
here-documents are searched for those files. What is only known at run time passes; a hook file that changed is refused
until a person approves it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.result import CONTINUE, HookResult
from hookline.files import is_code
from hookline.guards.commands import SHELLS, StepBudget, TooMuch, Word, asked, names
from hookline.guards.writes import (
    PlacedCommand,
    command_targets,
    folder_of,
    path_of,
    plain_words,
    shell_commands,
    written_paths,
)
from hookline.journal import default_path, xdg_folder
from hookline.secret_names import lazy_pattern

NOBODY_ASKED = ("bypassPermissions", "dontAsk", "auto")
"""The modes of Claude Code in which no person would see the question."""


# Not inline: resolving paths reads the file system, which may be slow.
@hook(on="tool.start", match="kind:write|shell|mcp|other", name="protect_hookline")
def protect_hookline(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Asks a person before a call changes a hook file, an agent's settings or what hookline keeps."""
    base = (ctx.workspace if ctx is not None else None) or os.getcwd()
    try:
        reason = next(_objections(hook_context, _Protected(base)), None)
    except TooMuch as exc:
        return HookResult.block(f"protect hookline: {exc}")
    if reason is None:
        return CONTINUE
    told = f"protect hookline: {reason}; a person has to agree to that"
    native: Any = hook_context.native
    mode = cast("Mapping[str, Any]", native).get("permission_mode") if isinstance(native, dict) else None
    return HookResult.block(told) if mode in NOBODY_ASKED else HookResult.ask(told)


_SETTINGS = r"\.(?:claude|gemini|qwen|qoder|augment)"
_NAMES = lazy_pattern(
    rf"(?:^|/)(?:hookline\.ya?ml|{_SETTINGS}/settings[^/]*\.json|\.factory/(?:hooks|settings)\.json|\.codex(?:/.*)?|bin/hookline)$",
    re.IGNORECASE,
)
# Also as the parts of a path in code: `".claude", "settings.json"`.
_MENTIONED = lazy_pattern(
    rf"hookline\.ya?ml|{_SETTINGS}\W{{1,8}}settings|\.factory\W{{1,8}}(?:hooks|settings)|\.codex\W"
    r"|hookline\W{1,8}(?:journal\.db|trusted\.json|clients|compiled)|/etc/(?:hookline|claude-code|codex|gemini-cli|qwen-code)\b",
    re.IGNORECASE,
)
_FOLDERS = ("/etc/hookline", "/etc/claude-code", "/etc/codex", "/etc/gemini-cli", "/etc/qwen-code")
_IN_A_FOLDER = (
    "hookline.yaml",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex",
    ".gemini/settings.json",
    ".qwen/settings.json",
)


class _Protected:
    """The files that are protected, seen from a folder."""

    def __init__(self, base: str) -> None:
        self.base = base
        state = os.path.dirname(default_path(os.environ))
        config = os.fspath(xdg_folder(os.environ, "XDG_CONFIG_HOME", ".config"))
        package = os.path.dirname(os.path.dirname(__file__))
        self.folders = [os.path.realpath(each) for each in (state, config, package, *_FOLDERS)]

    def holds(self, path: str) -> bool:
        """True if a change of this path is one of what is protected; a link is what it leads to."""
        try:
            whole = os.path.normpath(os.path.join(self.base, os.path.expanduser(path)))
            real = os.path.realpath(whole)
        except ValueError:
            return False
        if _NAMES.search(whole) or _NAMES.search(real):
            return True
        return any(_is_in(real, folder) for folder in self.folders) or _is_named(real)

    def reached(self, path: str) -> bool:
        """True if a file that is there is below this path, or fits it as a pattern."""
        whole = os.path.realpath(os.path.join(self.base, path))
        return self.fits(path) or any(_is_in(each, whole) for each in self.there)

    def fits(self, path: str) -> bool:
        """True if the path is a pattern, and a file that is there fits it."""
        whole = os.path.realpath(os.path.join(self.base, path))
        return re.search(r"[*?\[]", path) is not None and any(fnmatchcase(each, whole) for each in self.there)

    @cached_property
    def there(self) -> list[str]:
        """The protected files of this folder, those above it and the user's, as far as they are there."""
        tops = [*_above(os.path.join(self.base, "x")), os.path.expanduser("~")]
        places = [os.path.join(top, name) for top in tops for name in _IN_A_FOLDER]
        return [os.path.realpath(each) for each in (*places, *self.folders) if os.path.lexists(each)]

    def mentioned(self, text: str) -> str | None:
        """A protected file that a text names."""
        found = _MENTIONED.search(text)
        return found[0] if found else next((each for each in self.folders[:2] if each in text), None)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _above(path: str) -> Iterator[str]:
    while (folder := os.path.dirname(path)) != path:
        yield folder
        path = folder


def _is_named(file: str) -> bool:
    """True for a script that a hook file in its folder, or above it, names: its approval covers that."""
    if not is_code(file):
        return False
    for folder in _above(file):
        try:
            with open(os.path.join(folder, "hookline.yaml"), encoding="utf-8", errors="replace") as opened:
                text = opened.read(1_000_000)
        except OSError:
            continue
        name = os.path.relpath(file, folder)
        module = os.path.splitext(name)[0].replace("/", ".").removesuffix(".__init__")
        if re.search(rf"(?<![\w/-])(?:\./)?{re.escape(name)}(?![\w.-])|(?<![\w.]){re.escape(module)}:", text):
            return True
    return False


_CHANGES = lazy_pattern(
    r"write|edit|creat|move|delet|renam|patch|updat|append|replac|save|put|copy|insert", re.IGNORECASE
)


def _objections(hook_context: HookContext, protected: _Protected) -> Iterator[str]:
    payload, kind = hook_context.current_payload, hook_context.tool_kind
    given: Mapping[str, Any] = cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}
    if kind == "write" or (kind != "shell" and _CHANGES.search(hook_context.current_tool or "")):
        for path in written_paths(payload):
            if protected.holds(path):
                yield f"{path} would be changed"
    if kind == "shell" or (kind != "write" and any(given.get(key) for key in ("command", "cmd", "script"))):
        folder, work = folder_of(payload, protected.base), StepBudget()
        for command in asked(payload):
            yield from _in_shell(command, folder, protected, work)


# Programs that only read what they name; what they redirect, or write by an option, is looked at all the same.
_READERS = names(
    "cat bat less more head tail grep egrep fgrep rg ag ls tree stat file wc diff cmp comm echo printf test [ [[ : true"
    " false cd pwd which type whereis readlink realpath basename dirname jq nl od xxd hexdump strings md5sum sha1sum"
    " sha256sum sort uniq cut tr column du yamllint gh"
)
_COPIERS = names("cp install ln rsync scp mv")
_REMOVERS = names("rm mv trash")
_KILLERS = names("kill pkill killall skill")
_GIT_CHANGES = names("checkout restore stash reset clean rm mv apply am")
_INTERPRETER = lazy_pattern(
    r"(?:python|pypy|perl|ruby|php|lua|node|deno|bun|tclsh|awk|gawk|ed|ex|vim?|xargs|parallel)[\d.]*"
)
_VARIABLES = lazy_pattern(r"HOOKLINE_(?:HOME|TRUST|TAG)(?:=|$)")
# `w FILE`, behind an address or as a flag: `$w FILE`, `s/a/b/gw FILE`.
_SED_WRITES = lazy_pattern(r"(?:^|[^A-Za-z]|/[gpIMme\d]+)[wW]\s")
_AROUND = " /'\"(;&|\n\t"
_OWN = ("trust", "uninstall", "approve", "reject", "rewrite", "prune")
_OWN_TEXT = lazy_pattern(rf"(?:^|[\s/'\"(;&|])hookline\s+(?:{'|'.join(_OWN)})\b")


def _in_shell(
    command: str | Sequence[str], folder: str, protected: _Protected, work: StepBudget
) -> Iterator[str]:
    whole = command if isinstance(command, str) else " ".join(command)
    for each in shell_commands(command, folder, work):
        for path in [*command_targets(each), *_copied(each)]:
            if protected.holds(path) or protected.fits(path):
                yield f"{path} would be changed"
        yield from _variables(each)
        words = each.words
        if not words or _only_reads(words):
            continue
        yield from _own_commands(words)
        name, first = words[0].program, each.command.words[0].program
        # Also what stands before it, as xargs: that is fed too.
        interprets = _INTERPRETER.fullmatch(name) or _INTERPRETER.fullmatch(first)
        yield from _removed(each, protected)
        if name not in _COPIERS:
            yield from _changed(each, protected)
        for body in each.command.bodies:
            if name in SHELLS:
                yield from _in_shell(body, each.folder or folder, protected, work)
            elif interprets and (found := protected.mentioned(body)):
                yield f"{first} may change {found}"
        fed = each.command.fed and (name in SHELLS or interprets)
        # The input of a shell, an interpreter or xargs may be any part of the text.
        if fed and (found := protected.mentioned(whole)):
            yield f"{first} may change {found}"
        elif fed and (own := _OWN_TEXT.search(whole)):
            yield f"`{own[0].strip(_AROUND)}` is for a person"


def _copied(each: PlacedCommand) -> Iterator[str]:
    """The files that a copy into a folder writes there."""
    plain = list(plain_words(each.words[1:], ()))
    if each.words and each.words[0].program in _COPIERS and len(plain) > 1:
        top = path_of(plain[-1], each.folder)
        if top is not None and (top.endswith("/") or os.path.isdir(top)):
            yield from (os.path.join(top, os.path.basename(word.text.rstrip("/"))) for word in plain[:-1])


def _only_reads(words: Sequence[Word]) -> bool:
    name = words[0].program
    texts = [word.text for word in words]
    if name == "git":
        return _GIT_CHANGES.isdisjoint(texts)
    if name == "find":
        return not any(each in ("-delete", "-exec", "-execdir", "-ok", "-okdir") for each in texts)
    if name == "sed":
        return not any(_SED_WRITES.search(each) for each in texts[1:])
    return name in _READERS or (name == "hookline" and (texts[1:2] or [""])[0] not in _OWN)


def _variables(each: PlacedCommand) -> Iterator[str]:
    assigned = [f"{name}=" for name, _ in each.command.assigned]
    wrapping = each.command.words[: len(each.command.words) - len(each.words)]
    # `env -u NAME` leaves the name at the beginning.
    named = each.words[: None if each.words and each.words[0].text in ("export", "unset", "declare") else 1]
    for text in [*assigned, *(word.text for word in (*wrapping, *named))]:
        if _VARIABLES.match(text):
            yield f"{text.partition('=')[0]} would be changed, by which hookline knows its files and its agents"


def _own_commands(words: Sequence[Word]) -> Iterator[str]:
    texts = [word.text for word in words]
    if found := _OWN_TEXT.search(" ".join(texts)):
        yield f"`{found[0].strip(_AROUND)}` is for a person"
    inner = [each.text for word in words for command in word.inner for each in command.words[1:]]
    if words[0].program in _KILLERS and any("hookline" in text for text in [*texts, *inner]):
        yield "hookline would be ended"
    elif "hookline" in inner or ("hookline" in texts and {"uninstall", "remove"} & set(texts)):
        yield f"{words[0].program} may change the program hookline"


def _removed(each: PlacedCommand, protected: _Protected) -> Iterator[str]:
    if each.words[0].program not in _REMOVERS:
        return
    for word in plain_words(each.words[1:], ()):
        path = path_of(word, each.folder)
        if path is not None and protected.reached(path):
            yield f"{path} would be removed, with what guards the agent"


def _changed(each: PlacedCommand, protected: _Protected) -> Iterator[str]:
    """The words of a program that may write which name a protected file, alone, behind an option or in code."""
    name = each.words[0].program
    for word in each.words[1:]:
        path = path_of(word, each.folder)
        if path is not None and protected.holds(path):
            yield f"{name} may change {path}"
        elif found := protected.mentioned(word.text):
            yield f"{name} may change {found}"
