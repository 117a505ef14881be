"""The commands of a shell text with the folder that each stands in, and the paths they write to, as far as the text shows."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import (
    BARE,
    HOLE,
    SHELLS,
    ShellCommand,
    StepBudget,
    TooMuch,
    Word,
    argument_list,
    program_name,
    shell_aliases,
)
from hookline.guards.git import quoted
from hookline.guards.pipes import FEEDS, RUNS_FILE, pipe_of, written_files
from hookline.guards.shell import LONGEST, read
from hookline.guards.targets import (
    found_commands,
    named_targets,
    option_values,
    plain_words,
    shell_text_at,
    shell_texts,
    unwrapped,
)
from hookline.guards.variables import given_values, positional, printed, values_in

_DEEPEST = 5
_MOST_FILES = 20
_DEVICES = lazy_pattern(r"/dev/(?:null|stdout|stderr|stdin|tty|zero|fd/\d+)|/proc/self/fd/\d+")
_FUNCTION = lazy_pattern(r"([\w-]{1,60})\s{0,3}\(\s{0,3}\)")
# Parts of a path that may lead out of a folder.
_OUTSIDE = lazy_pattern(r"\.\.|^[/~]|\ue000")
_NAMED = lazy_pattern(r"\$(?:\{!?)?([A-Za-z_]\w*)(?!\w)(?!\}?:?[-=])")
_PATCHED = lazy_pattern(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\r?$", re.MULTILINE)
_UNIFIED = lazy_pattern(r"^(?:\+\+\+|---) (?:[ab]/)?([^\t\r\n]+)", re.MULTILINE)


class PlacedCommand(NamedTuple):
    """A command, its words without a leading sudo, env or the like, and its folder; None if that is unknown."""

    command: ShellCommand
    words: Sequence[Word]
    folder: str | None


def command_targets(placed: PlacedCommand) -> list[str]:
    """The paths that one command visibly writes to."""
    command, words, folder = placed
    found = [path_of(target, folder) for target in [*_redirected(command), *named_targets(words)]]
    return [*filter(None, found), *_patched(command, words, folder)]


def shell_commands(
    command: str | Sequence[str],
    base: str,
    work: StepBudget | None = None,
    depth: int = 0,
    values: Mapping[str, str] | None = None,
) -> Iterator[PlacedCommand]:
    """The commands of a shell text or an argument list, also of texts for another shell in it; `cd` is followed.

    Raises TooMuch if the text is too long to be read in full.
    """
    work = work or StepBudget()
    known = {"HOME": os.path.expanduser("~"), "PWD": base, **(values or {})}
    if not isinstance(command, str):
        yield from _placed((argument_list(command, work),), base, work, depth, known)
        return
    if len(command) > LONGEST:
        raise TooMuch
    commands = read(command, work=work).commands
    known |= values_in(commands)
    for other in _other_values(command, commands):
        yield from _placed(_filled(command, {**known, **other}, work), base, work, depth, {**known, **other})


def _placed(
    commands: Sequence[ShellCommand], base: str, work: StepBudget, depth: int, known: Mapping[str, str]
) -> Iterator[PlacedCommand]:
    texts = _Texts(commands, known, work)
    folders = _Folders(base, known.get("CDPATH", ""))
    for at, each in enumerate(commands):
        folder = folders.standing(each.group)
        words = unwrapped(each.words)
        for option in (
            option_values(each.words[:6], ("-C", "--chdir")) if each.program in ("env", "git") else ()
        ):
            folder = path_of(option, folder)
        if words and words[0].text in ("cd", "pushd", "popd"):
            folders.move(each.group, words)
            continue
        yield PlacedCommand(each, words, folder)
        for text, given in texts.nested(at, words) if depth < _DEEPEST else ():
            yield from shell_commands(text, folder or base, work, depth + 1, given)


def _other_values(text: str, commands: Sequence[ShellCommand]) -> list[dict[str, str]]:
    """The values that are tried one after another: none, those of each call of a function, and of each turn of a loop."""
    functions = {found[1] for found in _FUNCTION.finditer(text)} if "(" in text else set[str]()
    found: list[dict[str, str]] = [{}]
    for command in commands:
        words = command.words
        if command.program == "for":
            tried = [{name: word.text} for name, word in given_values(command) if _OUTSIDE.search(word.text)]
        elif len(words) > 1 and words[0].text in functions:
            tried = [positional([word.text for word in words[1:]])]
        else:
            continue
        found += [each for each in tried if each not in found[-1:]]
    return found


def _filled(text: str, variables: Mapping[str, str], work: StepBudget) -> tuple[ShellCommand, ...]:
    """The commands with known variables filled in; unknown ones stay holes, because an empty value would give a wrong path."""
    names = {found[1] for found in _NAMED.finditer(text)}
    from_outside = {name: HOLE for name in names if name not in variables}
    return read(text, {**from_outside, **variables}, work=work).commands


class _Folders:
    """The folders that the groups of a text stand in, as `cd` moves them."""

    def __init__(self, base: str, search: str) -> None:
        self.at: dict[tuple[int, ...], str | None] = {(): base}
        self.before: str | None = None
        self.stack: list[str | None] = []
        self.search = search

    def standing(self, group: tuple[int, ...]) -> str | None:
        while group not in self.at:
            group = group[:-1]
        return self.at[group]

    def move(self, group: tuple[int, ...], words: Sequence[Word]) -> None:
        folder = self.standing(group)
        if words[0].text == "popd":
            self.at[group] = self.stack.pop() if self.stack else None
            return
        if words[0].text == "pushd":
            self.stack = [*self.stack[-50:], folder]
        self.at[group] = self._target(folder, words)
        self.before = folder

    def _target(self, folder: str | None, words: Sequence[Word]) -> str | None:
        target = next((word for word in words[1:] if not word.text.startswith("-") or word.text == "-"), None)
        if target is None:
            return os.path.expanduser("~")
        if target.text == "-":
            return self.before
        if self.search and not target.text.startswith((".", "/", "~")) and target.known:
            return os.path.join(folder or "", self.search.partition(":")[0], target.text)
        return path_of(target, folder)


class _Texts:
    """The shell texts that the commands of a text give to another shell."""

    def __init__(self, commands: Sequence[ShellCommand], known: Mapping[str, str], work: StepBudget) -> None:
        self.commands = commands
        self.known = known
        self.work = work
        self.aliases = shell_aliases(commands)
        self.written: dict[str, list[int]] = {}
        for at, command in enumerate(commands):
            for target in written_files(command):
                self.written.setdefault(program_name(target), []).append(at)

    def nested(self, at: int, words: Sequence[Word]) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Each text that one command gives to a shell, with the variables that are known in it."""
        command = self.commands[at]
        if command.program == "env":
            for option in option_values(command.words, ("-S", "--split-string"), ("-u", "-C")):
                yield option.text, self.known
        if not words:
            return
        self.work.spend(1 + len(words) // 4)
        name, texts = words[0].program, [word.text for word in words]
        start = shell_text_at(texts) if name in SHELLS else 0
        given = {name: word.text for name, word in given_values(command) if word.known}
        if start:
            given |= {**positional(texts[start + 2 :]), "0": (texts[start + 1 : start + 2] or [""])[0]}
        values = {key: value for key, value in {**self.known, **given}.items() if key != "PWD"}
        for text in [*shell_texts(words), *self._handed(at, name, words)]:
            yield text, values
        if texts[0] in self.aliases:
            yield f"{self.aliases[texts[0]]} {quoted(words[1:])}", {}
        for inner in found_commands(words) if name == "find" else ():
            yield quoted(inner), {}
        if name == "flock":
            after = list(plain_words(words[1:], ("-w", "-E", "-c", "--command")))[1:]
            yield quoted(after), {}
        if any(word.program in FEEDS for word in command.words[:4]):
            yield from ((text, {}) for text in self._added(at, words))

    def _handed(self, at: int, name: str, words: Sequence[Word]) -> Iterator[str]:
        """The texts that a shell reads from here-documents, pipes, substitutions and files that are written here."""
        command = self.commands[at]
        runs = name in RUNS_FILE or name == "eval"
        if runs:
            yield from command.bodies
            inner = [each for word in words for each in word.inner]
            yield from filter(None, map(printed, inner))
        if name in SHELLS and command.fed:
            yield self._printed(at)
        for word in words[: _MOST_FILES if runs else 1]:
            for producer in self.written.get(program_name(word.text), ()):
                if producer != at:
                    yield self._printed(producer)

    def _added(self, at: int, words: Sequence[Word]) -> Iterator[str]:
        """The command of xargs with the words that it reads, behind it or in the place of its mark."""
        said = self._printed(at).replace("\0", " ").replace("\n", " ").strip()
        if said and words:
            text = quoted(words)
            yield f"{text} {said}"
            marks = option_values(self.commands[at].words[:6], ("-I",), ("-n", "-P", "-d", "-L", "-a"))
            for mark in {"{}", *(word.text for word in marks)} - {""}:
                yield text.replace(mark, said)[:10_000]

    def _printed(self, at: int) -> str:
        pipe = pipe_of(self.commands, at)
        self.work.spend(len(pipe))
        return "".join(map(printed, pipe))


def linked(placed: PlacedCommand) -> Mapping[str, str]:
    """The links that a command makes: their places, and what they lead to."""
    words = placed.words
    if (
        not words
        or words[0].program != "ln"
        or not any(re.match(r"-[a-zA-Z]*s|--sym", word.text) for word in words)
    ):
        return {}
    plain = list(plain_words(words[1:], ("-S", "--suffix", "-t", "--target-directory")))
    if not plain or not plain[0].known:
        return {}
    source, place = plain[0].text, path_of(plain[-1], placed.folder)
    if place is None:
        return {}
    if len(plain) == 1 or os.path.isdir(place):
        place = os.path.join(placed.folder or "" if len(plain) == 1 else place, os.path.basename(source))
    return {os.path.normpath(place): os.path.join(os.path.dirname(place), source)}


def through_links(path: str, links: Mapping[str, str]) -> Iterator[str]:
    """The path behind a link that the same text makes."""
    for place, source in links.items():
        if path == place or path.startswith(f"{place}/"):
            yield source + path[len(place) :]


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


def patched_files(text: str) -> Iterator[str]:
    """The files that a patch changes; none for any other text."""
    yield from _PATCHED.findall(text)
    yield from (path for path in _UNIFIED.findall(text) if path != "/dev/null")


def path_of(word: Word, folder: str | None) -> str | None:
    """The path a word names; None if it is unknown, or a device that stores nothing."""
    text = word.text
    if not text or not word.known or _DEVICES.fullmatch(text):
        return None
    if text.startswith("~+") and word.kinds[:1] != "q":
        text = f".{text[2:]}"
    elif text.startswith("~") and word.kinds[:1] != "q":
        text = os.path.expanduser(text)
    elif text.startswith("~"):
        text = f"./{text}"
    if BARE in word.kinds and "/" in text and any(letter in text for letter in "?*["):
        # Some shells take `.?` and `.*` for the folder above.
        text = "/".join(
            ".." if part[:1] == "." and part != "." and fnmatchcase("..", part) else part
            for part in text.split("/")
        )
    if os.path.isabs(text):
        return text
    return os.path.join(folder, text) if folder is not None else None


def _redirected(command: ShellCommand) -> Iterator[Word]:
    for redirect in command.redirects:
        text = redirect.target.text
        if ">" in redirect.sign and not (redirect.sign == ">&" and (text.isdigit() or text.startswith("-"))):
            yield redirect.target
