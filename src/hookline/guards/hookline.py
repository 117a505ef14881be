"""protect_hookline: asks before an agent changes what guards it: hook files, agents' settings, hookline's own files.

Reading is free. A program that is not known to read only is taken for one that writes, and its words, its code and its
here-documents are searched for those files. What is only known at run time passes; a hook file that changed is refused
until a person approves it again.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.plain import inner, mapping
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import lazy_pattern
from hookline.files import is_code
from hookline.guards.commands import SHELLS, StepBudget, TooMuch, Word, asked, names
from hookline.guards.placed import PlacedCommand, command_targets, path_of, shell_commands
from hookline.guards.targets import IN_PLACE, option_values, plain_words
from hookline.guards.writes import changed_paths, folder_of, is_in, runs_commands, workspace_of
from hookline.journal import default_path, xdg_folder

NOBODY_ASKED = ("bypassPermissions", "dontAsk", "auto")
"""The modes of Claude Code in which no person would see the question."""


# Not inline: resolving paths reads the file system, which may be slow.
@hook(on="tool.start", match="kind:write|shell|mcp|other", name="protect_hookline")
def protect_hookline(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
    """Asks a person before a call changes a hook file, an agent's settings or what hookline keeps."""
    try:
        reason = next(_objections(hook_context, _Protected(workspace_of(ctx))), None)
    except TooMuch as exc:
        return HookResult.block(f"protect hookline: {exc}")
    if reason is None:
        return CONTINUE
    told = f"protect hookline: {reason}; a person has to agree to that"
    mode = inner(hook_context.native, "permission_mode")
    return HookResult.block(told) if mode in NOBODY_ASKED else HookResult.ask(told)


_SETTINGS = r"\.(?:claude|gemini|qwen|qoder|augment)"
_NAMES = lazy_pattern(
    rf"(?:^|/)(?:hookline\.ya?ml|{_SETTINGS}/settings[^/]*\.json|\.factory/(?:hooks|settings)\.json|\.codex(?:/.*)?|bin/hookline)$",
    re.IGNORECASE,
)
# Also as the parts of a path in code: `".claude", "settings.json"`.
_MENTIONED = lazy_pattern(
    rf"hookline\.ya?ml|{_SETTINGS}(?:\W{{1,8}}settings|['\"])|\.factory\W{{1,8}}(?:hooks|settings)|\.codex\W"
    r"|hookline\W{1,8}(?:journal\.db|trusted\.json|clients|compiled)|/etc/(?:hookline|claude-code|codex|gemini-cli|qwen-code)\b",
    re.IGNORECASE,
)
# In code that runs in the folder of such a file.
_MENTIONED_THERE = lazy_pattern(r"settings[\w.]*\.json|hooks\.json|journal\.db|trusted\.json")
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
        return any(is_in(real, folder) for folder in self.folders) or _is_named(real)

    def reached(self, path: str, names: Sequence[str] = ()) -> bool:
        """True if a file that is there is below this path, or below what fits it as a pattern, and has such a name."""
        parts = os.path.realpath(os.path.join(self.base, path)).rstrip("/").split("/")
        return any(
            _fit(each.split("/"), parts)
            and (not names or any(fnmatchcase(os.path.basename(each), name) for name in names))
            for each in self.there
        )

    @cached_property
    def there(self) -> list[str]:
        """The protected files of this folder, those above it and the user's, as far as they are there."""
        tops = [self.base, *Path(self.base).parents, os.path.expanduser("~")]
        places = [os.path.join(top, name) for top in tops for name in _IN_A_FOLDER]
        places += [os.path.join(self.folders[0], name) for name in ("journal.db", "trusted.json")]
        return [os.path.realpath(each) for each in (*places, *self.folders) if os.path.lexists(each)]

    def mentioned(self, text: str, folder: str | None = None) -> str | None:
        """A protected file that a text names, as it would from a folder."""
        found = _MENTIONED.search(text)
        if found is None and folder and self.holds(os.path.join(folder, "settings.json")):
            found = _MENTIONED_THERE.search(text)
        return found[0] if found else next((each for each in self.folders[:2] if each in text), None)


def _fit(file: Sequence[str], pattern: Sequence[str]) -> bool:
    """True if a path, or a folder above it, fits a pattern as a shell reads it: a `*` names nothing hidden."""
    return len(file) >= len(pattern) and all(
        name == part or (fnmatchcase(name, part) and (name[0] != "." or part[0] == "."))
        for name, part in zip(file, pattern, strict=False)
    )


def _is_named(file: str) -> bool:
    """True for a script that a hook file in its folder, or above it, names: its approval covers that."""
    if not is_code(file):
        return False
    for folder in Path(file).parents:
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


def _objections(hook_context: HookContext, protected: _Protected) -> Iterator[str]:
    payload, kind = hook_context.current_payload, hook_context.tool_kind
    given = mapping(payload)
    for path in changed_paths(hook_context):
        if protected.holds(path):
            yield f"{path} would be changed"
    if kind not in ("shell", "write") and (found := protected.mentioned(str(given.get("code", "")))):
        yield f"{hook_context.current_tool} may change {found}"
    if kind == "shell" or (kind != "write" and runs_commands(payload)):
        folder, work = folder_of(payload, protected.base), StepBudget()
        for command in asked(payload):
            yield from _in_shell(command, folder, protected, work)


# Programs that only read what they name; what they redirect, or write by an option, is looked at all the same.
_READERS = names(
    "cat bat less more head tail grep egrep fgrep rg ag ls tree stat file wc diff cmp comm echo printf test [ [[ : true"
    " false cd pwd which type whereis readlink realpath basename dirname jq nl od hexdump strings md5sum sha1sum"
    " sha256sum sort cut tr column du yamllint gh"
)
_COPIERS = names("cp install ln rsync scp mv")
_REMOVERS = names("rm rmdir mv shred unlink trash truncate")
_PATTERN = lazy_pattern(r"[*?\[]")
_EDITS = lazy_pattern(r"-\w*i|--in-place")
_KILLERS = names("kill pkill killall skill")
_GIT_CHANGES = names("checkout restore stash reset clean rm mv apply am")
_INTERPRETER = lazy_pattern(
    r"(?:python|pypy|perl|ruby|php|lua|node|deno|bun|tclsh|awk|gawk|ed|ex|vim?|xargs|parallel)[\d.]*"
)
_VARIABLES = lazy_pattern(r"HOOKLINE_(?:HOME|TRUST|TAG)(?:=|$)")
# `w FILE`, behind an address or as a flag: `$w FILE`, `s/a/b/gw FILE`.
_SED_WRITES = lazy_pattern(r"(?:^|[^A-Za-z]|/[gpIMme\d]+)[wW]\s")
_PACKAGE = lazy_pattern(r"\b(?:un)?install\b.*[\s/]hookline(?![\w./-])|\bremove\b.*\shookline(?![\w./-])")
_AROUND = " /'\"(;&|\n\t"
_OWN = ("trust", "uninstall", "approve", "reject", "rewrite", "prune")
_OWN_TEXT = lazy_pattern(rf"(?:^|[\s/'\"(;&|])hookline\s+(?:{'|'.join(_OWN)})\b")


def _in_shell(
    command: str | Sequence[str], folder: str, protected: _Protected, work: StepBudget
) -> Iterator[str]:
    whole = command if isinstance(command, str) else " ".join(command)
    commands = list(shell_commands(command, folder, work))
    written = {os.path.normpath(path) for each in commands for path in command_targets(each)}
    handed_on = any(map(_is_handed, commands)) and any(map(_takes_what_is_handed, commands))
    for each in commands:
        for path in [*command_targets(each), *_copied(each)]:
            if protected.holds(path) or (_PATTERN.search(path) and protected.reached(path)):
                yield f"{path} would be changed"
        yield from _variables(each)
        words = each.words
        if not words:
            continue
        if handed_on or (words[0].program == "find" and ("-delete" in _texts(words) or _taker(words))):
            yield from (
                _TAKEN.format(path) for path, named in _listed(each) if protected.reached(path, named)
            )
        if _only_reads(words):
            continue
        yield from _own_commands(words)
        name, first = words[0].program, each.command.words[0].program
        # Also what stands before it, as xargs: that is fed too.
        interprets = _INTERPRETER.fullmatch(name) or _INTERPRETER.fullmatch(first)
        yield from (_TAKEN.format(path) for path in _taken(each) if protected.reached(path))
        if name not in _COPIERS:
            yield from _changed(each, protected)
        for body in each.command.bodies:
            if interprets and (found := protected.mentioned(body)):
                yield f"{first} may change {found}"
        runs_code = name in SHELLS or interprets
        paths = [path_of(word, each.folder) for word in (words if runs_code else words[:1])]
        fed = (each.command.fed and runs_code) or any(
            path and os.path.normpath(path) in written for path in paths
        )
        # The input of such a program, or a script that was just written, may be any part of the text.
        if fed and (found := protected.mentioned(whole)):
            yield f"{first} may change {found}"
        elif fed and (own := _OWN_TEXT.search(whole)):
            yield f"`{own[0].strip(_AROUND)}` is for a person"


def _copied(each: PlacedCommand) -> Iterator[str]:
    """The files that a copy into a folder writes there, also those of a folder that is copied."""
    if not each.words or each.words[0].program not in _COPIERS:
        return
    options = ("-t", "--target-directory")
    plain = list(plain_words(each.words[1:], options))
    named = list(option_values(each.words, options)) or plain[-1:]
    top = path_of(named[0], each.folder) if named else None
    into = top is not None and (top.endswith("/") or os.path.isdir(top))
    for word in plain:
        source = path_of(word, each.folder)
        if top is None or source is None or word is named[0]:
            continue
        # `folder/.` stands for what is in it, and to rsync `folder/` does.
        all_of_it = word.text.endswith("/.") or (each.words[0].program == "rsync" and word.text.endswith("/"))
        place = os.path.join(top, os.path.basename(source.rstrip("/"))) if into and not all_of_it else top
        if into:
            yield place
        for name in (*_IN_A_FOLDER, "settings.json", "settings.local.json"):
            if os.path.lexists(os.path.join(source, name)):
                yield os.path.join(place, name)


def _only_reads(words: Sequence[Word]) -> bool:
    name = words[0].program
    texts = _texts(words)
    if name == "git":
        return _GIT_CHANGES.isdisjoint(texts)
    if name == "find":
        return not any(each in ("-delete", "-exec", "-execdir", "-ok", "-okdir") for each in texts)
    if name == "sed":
        return not any(IN_PLACE.match(each) or _SED_WRITES.search(each) for each in texts[1:])
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
    texts = _texts(words)
    if found := _OWN_TEXT.search(" ".join(texts)):
        yield f"`{found[0].strip(_AROUND)}` is for a person"
    inner = [each.text for word in words for command in word.inner for each in command.words[1:]]
    if words[0].program in _KILLERS and any("hookline" in text for text in [*texts, *inner]):
        yield "hookline would be ended"
    elif "hookline" in inner or _PACKAGE.search(" ".join(texts)):
        yield f"{words[0].program} may change the program hookline"


_TAKEN = "{} would be changed or removed, with what guards the agent"


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]


def _taker(words: Sequence[Word]) -> int | None:
    """The position of a program that removes the files it is given, or changes them in place; None if there is none."""
    for at, word in enumerate(words):
        edits = word.program in ("sed", "perl", "ruby") and any(map(_EDITS.match, _texts(words[at + 1 :])))
        if word.program in _REMOVERS or edits:
            return at
    return None


def _is_handed(each: PlacedCommand) -> bool:
    """True if a command is given what another prints, or names a list itself."""
    command = each.command
    return command.fed or command.program in ("read", "for") or any(word.inner for word in each.words)


def _takes_what_is_handed(each: PlacedCommand) -> bool:
    """True if a command removes or changes files that another lists: by xargs, or by the variable of a loop."""
    handed = each.command.program in ("xargs", "parallel") or not all(word.known for word in each.words)
    return handed and _taker(each.words) is not None


def _listed(each: PlacedCommand) -> Iterator[tuple[str, list[str]]]:
    """The places that find, ls or a loop goes through, with the names that find looks for."""
    name, words, named = each.words[0].program, each.words[1:], list[str]()
    if name == "find":
        named = [
            value for option, value in itertools.pairwise(_texts(words)) if option in ("-name", "-iname")
        ]
        words = list(itertools.takewhile(lambda word: word.text[:1] not in ("-", "(", "!"), words))
    elif name == "ls":
        words = list(plain_words(words, ()))
    elif name == "for" and _texts(words[1:2]) == ["in"]:
        words = words[2:]
    else:
        return
    for word in words or [Word(".", "b")]:
        path = path_of(word, each.folder)
        if path is not None:
            yield path, named


def _taken(each: PlacedCommand) -> Iterator[str]:
    """The files and folders that a command removes, changes in place, or has git do that."""
    words = each.words
    at = _taker(words)
    texts = _texts(words)
    options = " ".join(text for text in texts if text.startswith("-"))
    given: Sequence[Word] = ()
    if at is not None:
        given = list(plain_words(words[at + 1 :], ()))
    elif texts[0] == "rsync" and any(text.startswith("--delete") for text in texts):
        given = list(plain_words(words[1:], ()))[-1:]
    elif texts[0] == "git" and {"checkout", "restore"} & {*texts}:
        given = [word for word in words[1:] if os.path.isdir(path_of(word, each.folder) or "")]
    elif texts[0] == "git" and "clean" in texts and not re.search(r"(?:^| )(?:-\w*n|--dry)", options):
        given = list(plain_words(words[texts.index("clean") + 1 :], ("-e", "--exclude"))) or [Word(".", "b")]
    elif texts[0] == "git" and "stash" in texts and re.search(r"(?:^| )(?:-\w*[ua]|--incl|--al)", options):
        given = [Word(".", "b")]
    yield from filter(None, (path_of(word, each.folder) for word in given))


def _changed(each: PlacedCommand, protected: _Protected) -> Iterator[str]:
    """The words of a program that may write which name a protected file, alone, behind an option or in code."""
    name = each.words[0].program
    for word in each.words[1:]:
        path = path_of(word, each.folder)
        if path is not None and protected.holds(path):
            yield f"{name} may change {path}"
        elif found := protected.mentioned(word.text, each.folder):
            yield f"{name} may change {found}"
