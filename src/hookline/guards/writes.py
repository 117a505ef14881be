"""no_writes_outside: refuses writes outside the workspace, after resolving `..`, `~`, links and `cd`.

For tools that write files the path is resolved and compared. For shell text it is best effort: a path in the text is
checked, a path that is only known at run time passes. Only a sandbox confines a shell.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import hook
from hookline.engine.plain import mapping
from hookline.engine.result import CONTINUE, HookResult
from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import (
    FOLDERS,
    SHELLS,
    ShellCommand,
    StepBudget,
    TooMuch,
    Word,
    argument_list,
    asked,
    names,
)
from hookline.guards.shell import LONGEST, read


def no_writes_outside_of(
    *roots: str | os.PathLike[str], temporary: bool | None = None
) -> Callable[[WorkflowContext | None, HookContext], HookResult]:
    """`no_writes_outside` for the folders you name; the workspace only counts if you name none.

    `temporary`: True if the system's temporary folder may be written to. Without it, that is so where no folder is
    named, and the workspace does not lie in the temporary folder itself.
    """

    # Not inline: resolving paths reads the file system, which may be slow.
    @hook(on="tool.start", match="kind:write|shell", name="no_writes_outside")
    def guard(ctx: WorkflowContext | None, hook_context: HookContext) -> HookResult:
        """Blocks a write to a path outside the run's workspace."""
        base = workspace_of(ctx)
        named = [os.path.join(base, os.path.expanduser(root)) for root in roots]
        real = [os.path.realpath(root) for root in named or [base]]
        scratch = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")
        if temporary or (temporary is None and not named and not is_in(real[0], scratch)):
            real.append(scratch)
        try:
            paths = _targets(hook_context, base)
        except TooMuch as exc:
            return HookResult.block(f"no writes outside: {exc}")
        for path in paths:
            reason = _outside(path, base, real)
            if reason is not None:
                return HookResult.block(f"no writes outside: {reason}")
        return CONTINUE

    return guard


no_writes_outside = no_writes_outside_of()


def _targets(hook_context: HookContext, base: str) -> list[str]:
    """The paths that a call writes to."""
    payload = hook_context.current_payload
    if hook_context.tool_kind != "shell":
        return list(written_paths(payload))
    folder, work = folder_of(payload, base), StepBudget()
    return [path for command in asked(payload) for path in shell_targets(command, folder, work)]


def workspace_of(ctx: WorkflowContext | None) -> str:
    """The absolute folder of a run; the current one if it has none."""
    return os.path.abspath((ctx.workspace if ctx is not None else None) or "")


def folder_of(payload: Any, base: str) -> str:
    """The folder that a shell call names, else the base."""
    given = mapping(payload)
    named = next((given[key] for key in FOLDERS if isinstance(given.get(key), str)), "")
    return os.path.join(base, os.path.expanduser(named))


def _outside(path: str, base: str, roots: Sequence[str]) -> str | None:
    try:
        real = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
    except ValueError as exc:
        return f"{path!r} is not a path ({exc})"
    if any(is_in(real, root) for root in roots):
        return None
    shown = path if path == real else f"{path} (which is {real})"
    return f"{shown} is not in {' or '.join(roots)}"


def is_in(path: str, folder: str) -> bool:
    """True if a path is a folder or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


_A_PATH = lazy_pattern(
    r"(?:^|_)(?:path|file|filename|filepath|dest|destination|target|folder|directory|dir|uri)s?(?:$|_)"
)
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_PATH = frozenset({"file_text", "file_content", "file_contents", "file_type", "file_size", "path_type"})
_PATCHES = frozenset({"input", "patch", "diff", "command"})
_PATCHED = lazy_pattern(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\r?$", re.MULTILINE)
_UNIFIED = lazy_pattern(r"^(?:\+\+\+|---) (?:[ab]/)?([^\t\r\n]+)", re.MULTILINE)


def written_paths(payload: Any) -> Iterator[str]:
    """The paths in the input of a tool that writes: under keys named like a path, and inside patches."""
    if isinstance(payload, Mapping):
        for key, value in cast("Mapping[Any, Any]", payload).items():
            name = _CAMEL.sub("_", str(key)).lower()
            yield from _values(name, value)
    elif isinstance(payload, list):
        for item in cast("list[Any]", payload):
            yield from written_paths(item)


def _values(name: str, value: Any) -> Iterator[str]:
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            yield from written_paths(item)
        elif name in _PATCHES:
            yield from patched_files(item)
        elif item and _A_PATH.search(name) and name not in _NO_PATH:
            yield unquote(urlsplit(item).path) if item.lower().startswith("file:") else item


def patched_files(text: str) -> Iterator[str]:
    """The files that a patch changes; none for any other text."""
    yield from _PATCHED.findall(text)
    yield from (path for path in _UNIFIED.findall(text) if path != "/dev/null")


# Programs, and which of their arguments they write to.
_ALL = names("tee touch mkdir rm rmdir truncate unlink shred mv")
_LAST = names("cp install ln rsync scp")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("cp", "mv", "install", "ln"), ("-t", "--target-directory")),
    "curl": ("-o", "--output", "--output-dir"),
    "wget": ("-O", "--output-document", "-P", "--directory-prefix"),
    "sort": ("-o", "--output"),
    "tree": ("-o",),
    "diff": ("--output",),
    "tar": ("-C", "--directory"),
    "unzip": ("-d",),
}
_TAKES_VALUE = {
    "truncate": ("-s", "--size"),
    "install": ("-m", "-o", "-g"),
    "mkdir": ("-m",),
    "touch": ("-d", "-t", "-r"),
}
_WRAPPERS = names(
    "sudo doas env command builtin exec nohup nice ionice busybox time timeout stdbuf setsid xargs"
)
IN_PLACE = lazy_pattern(r"-[nErsuz]*i|--in-place")
"""The option of `sed` that changes the files it names."""
_DEVICES = lazy_pattern(r"/dev/(?:null|stdout|stderr|stdin|tty|zero|fd/\d+)|/proc/self/fd/\d+")
_DEEPEST = 5


def shell_targets(command: str | Sequence[str], base: str, work: StepBudget | None = None) -> list[str]:
    """The paths a shell text or an argument list visibly writes to, absolute or relative to `base`.

    Raises TooMuch if the text is too long to be read in full.
    """
    return [path for each in shell_commands(command, base, work) for path in command_targets(each)]


class PlacedCommand(NamedTuple):
    """A command, its words without a leading sudo, env or the like, and its folder; None if that is unknown."""

    command: ShellCommand
    words: Sequence[Word]
    folder: str | None


def command_targets(placed: PlacedCommand) -> list[str]:
    """The paths that one command visibly writes to."""
    command, words, folder = placed
    found = [path_of(target, folder) for target in [*_redirected(command), *_named(words)]]
    return [*filter(None, found), *_patched(command, words, folder)]


def shell_commands(
    command: str | Sequence[str], base: str, work: StepBudget | None = None, depth: int = 0
) -> Iterator[PlacedCommand]:
    """The commands of a shell text or an argument list, also of texts for another shell in it; `cd` is followed.

    Raises TooMuch if the text is too long to be read in full.
    """
    work = work or StepBudget()
    if isinstance(command, str):
        if len(command) > LONGEST:
            raise TooMuch
        variables = {"HOME": os.path.expanduser("~"), "PWD": base}
        commands = read(command, work=work).commands
        known = {name: word.text for each in commands for name, word in each.assigned if word.known}
        commands = _filled(command, {**variables, **known}, work)
    else:
        commands = (argument_list(command, work),)
    folders: dict[tuple[int, ...], str | None] = {(): base}
    for each in commands:
        folder = _standing(folders, each.group)
        words = _unwrapped(each.words)
        if each.program in ("env", "git") and len(each.words) > 2 and each.words[1].text in ("-C", "--chdir"):
            folder = path_of(each.words[2], folder)
        if words and words[0].text in ("cd", "pushd"):
            folders[each.group] = _moved(folder, words)
            continue
        yield PlacedCommand(each, words, folder)
        for text in _texts(words) if depth < _DEEPEST else ():
            yield from shell_commands(text, folder or base, work, depth + 1)


def _patched(command: ShellCommand, words: Sequence[Word], folder: str | None) -> list[str]:
    """The files in a patch passed to patch, git or Codex's apply_patch, as an argument or on stdin."""
    texts = [word.text for word in words]
    name = words[0].program if words else ""
    if name not in ("apply_patch", "applypatch", "patch") and not (
        name == "git" and {"apply", "am"} & {*texts}
    ):
        return []
    given = [*texts[1:], *command.bodies]
    return [os.path.join(folder or "", path) for text in given for path in patched_files(text)]


def _filled(text: str, variables: Mapping[str, str], work: StepBudget) -> tuple[ShellCommand, ...]:
    """The commands with known variables filled in; unknown ones stay holes, because an empty value would give a wrong path."""
    names = {match[1] for match in re.finditer(r"\$\{?([A-Za-z_]\w*)", text)}
    from_outside = {name: "\ue000" for name in names if name not in variables}
    return read(text, {**from_outside, **variables}, work=work).commands


def _standing(folders: Mapping[tuple[int, ...], str | None], group: tuple[int, ...]) -> str | None:
    while group not in folders:
        group = group[:-1]
    return folders[group]


def _moved(folder: str | None, words: Sequence[Word]) -> str | None:
    target = next((word for word in words[1:] if not word.text.startswith("-") or word.text == "-"), None)
    if target is None:
        return os.path.expanduser("~")
    return None if target.text == "-" else path_of(target, folder)


def path_of(word: Word, folder: str | None) -> str | None:
    """The path a word names; None if it is unknown, or a device that stores nothing."""
    text = word.text
    if not text or not word.known or _DEVICES.fullmatch(text):
        return None
    if text.startswith("~") and word.kinds[:1] != "q":
        text = os.path.expanduser(text)
    elif text.startswith("~"):
        text = f"./{text}"
    if os.path.isabs(text):
        return text
    return os.path.join(folder, text) if folder is not None else None


def _redirected(command: ShellCommand) -> Iterator[Word]:
    for redirect in command.redirects:
        text = redirect.target.text
        if ">" in redirect.sign and not (redirect.sign == ">&" and (text.isdigit() or text.startswith("-"))):
            yield redirect.target


def _named(words: Sequence[Word]) -> Iterator[Word]:
    if not words:
        return
    name = words[0].program
    options = _OPTIONS.get(name, ())
    yield from option_values(words, options)
    if name == "dd":
        yield from (word.after(3) for word in words[1:] if word.text.startswith("of="))
    plain = list(plain_words(words[1:], (*options, *_TAKES_VALUE.get(name, ()))))
    if name == "sed" and any(IN_PLACE.match(word.text) for word in words[1:]):
        yield from plain[1:]
    if name in _ALL:
        yield from plain
    elif name in _LAST and len(plain) > 1:
        yield from (word for word in plain[-1:] if not re.match(r"[\w.@-]+:", word.text))


def option_values(words: Sequence[Word], options: Iterable[str]) -> Iterator[Word]:
    """The values of some options, in each of the ways to write them."""
    for at, word in enumerate(words):
        for option in options:
            if word.text == option and at + 1 < len(words):
                yield words[at + 1]
            elif option.startswith("--") and word.text.startswith(f"{option}="):
                yield word.after(len(option) + 1)
            elif not option.startswith("--") and word.text.startswith(option) and word.text != option:
                yield word.after(len(option))


def plain_words(words: Sequence[Word], options: Iterable[str]) -> Iterator[Word]:
    """The arguments that are neither options nor their values."""
    taking = frozenset(options)
    skipped = only = False
    for word in words:
        if skipped:
            skipped = False
        elif word.text == "--" and not only:
            only = True
        elif only or not word.text.startswith("-") or word.text == "-":
            yield word
        else:
            skipped = word.text in taking


def _unwrapped(words: Sequence[Word]) -> Sequence[Word]:
    """The command without a leading sudo, env or the like and their options."""
    at = 0
    while at < len(words) and words[at].program in _WRAPPERS:
        at += 1
        while at < len(words) and _is_option(words[at].text):
            at += 1
    return words[at:]


def _is_option(text: str) -> bool:
    return text.startswith("-") or "=" in text or text.rstrip("smh").isdigit()


def _texts(words: Sequence[Word]) -> list[str]:
    """The shell text passed to a shell or to eval."""
    if not words:
        return []
    name = words[0].program
    if name == "eval":
        return [" ".join(word.text for word in words[1:])]
    if name not in SHELLS:
        return []
    at = next((at for at, word in enumerate(words) if re.fullmatch(r"-[a-z]*c[a-z]*", word.text)), None)
    return [word.text for word in words[at + 1 :] if not word.text.startswith("-")][:1] if at else []
