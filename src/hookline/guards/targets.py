"""The files that a program is told to write to: by its options, its arguments, or a program that it runs in turn."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hookline.engine.stdlib import lazy_pattern
from hookline.guards.commands import SHELLS, Word


class Program(NamedTuple):
    """Which of a program's arguments it writes to: a part of the plain ones, and the values of some options.

    `least` is the number of plain arguments from which on one of them is written; `takes` are other options with a value.
    """

    plain: slice = slice(0)
    options: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    least: int = 1


_ALL, _FIRST, _SECOND, _LAST = slice(None), slice(1), slice(1, 2), slice(-1, None)
_INTO = ("-t", "--target-directory")
_SUFFIX = ("-S", "--suffix")
_PACKED = Program(_ALL, takes=("-S",))
PROGRAMS: Mapping[str, Program] = {
    **dict.fromkeys(("tee", "rm", "rmdir", "unlink"), Program(_ALL)),
    **dict.fromkeys(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "lzma"), _PACKED),
    "touch": Program(_ALL, takes=("-d", "-t", "-r", "--date", "--reference", "--time")),
    "mkdir": Program(_ALL, takes=("-m", "--mode")),
    "mkfifo": Program(_ALL, takes=("-m", "--mode")),
    "mknod": Program(_FIRST, takes=("-m", "--mode")),
    "truncate": Program(_ALL, takes=("-s", "-r", "--size", "--reference")),
    "fallocate": Program(_ALL, takes=("-l", "-o", "--length", "--offset")),
    "shred": Program(_ALL, takes=("-n", "-s", "--iterations", "--size", "--random-source")),
    "mv": Program(_ALL, _INTO, _SUFFIX),
    "cp": Program(_LAST, _INTO, _SUFFIX, 2),
    "ln": Program(_LAST, _INTO, _SUFFIX, 2),
    "install": Program(_LAST, _INTO, ("-m", "-o", "-g", "--mode", "--owner", "--group", *_SUFFIX), 2),
    "link": Program(_SECOND),
    "rsync": Program(_LAST, (), ("-e", "-f", "-T", "-B", "-M"), 2),
    "scp": Program(_LAST, (), ("-P", "-i", "-F", "-o", "-c", "-J", "-l", "-S"), 2),
    "sort": Program(options=("-o", "--output"), takes=("-k", "-t", "-S", "-T", "--key")),
    "shuf": Program(options=("-o", "--output"), takes=("-n", "-i")),
    "uniq": Program(_SECOND, takes=("-f", "-s", "-w")),
    "split": Program(_SECOND, takes=("-b", "-l", "-n", "-a", "-C")),
    "csplit": Program(options=("-f", "--prefix"), takes=("-b", "-n")),
    "curl": Program(
        options=("-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar", "--trace"),
        takes=tuple(f"-{letter}" for letter in "AbCdeEFHKmPQrtTuUwxXyYz"),
    ),
    "wget": Program(
        options=("-O", "--output-document", "-P", "--directory-prefix", "-o", "--output-file", "-a"),
        takes=tuple(f"-{letter}" for letter in "eiBtTwQUlARDIX"),
    ),
    "tree": Program(options=("-o",), takes=("-L", "-P", "-I")),
    "diff": Program(options=("--output",)),
    "unzip": Program(options=("-d",), takes=("-x", "-P")),
    "mktemp": Program(_FIRST, ("-p", "--tmpdir"), ("--suffix",)),
    "patch": Program(_FIRST, ("-o", "-d", "-r", "--output", "--directory"), ("-p", "-i", "-F", "-B", "-z")),
    "flock": Program(_FIRST, takes=("-w", "-E", "-c", "--command")),
    "script": Program(_LAST, ("-O", "-I", "-B", "-T"), ("-c", "--command", "-E", "-m", "-o")),
}
_GIT: Mapping[str, Program] = {
    "init": Program(_LAST, ("--separate-git-dir",), ("-b", "--template")),
    "clone": Program(
        _SECOND, ("--separate-git-dir",), ("-b", "-o", "-u", "-c", "-j", "--depth", "--reference")
    ),
    "archive": Program(options=("-o", "--output"), takes=("--format", "--prefix", "--remote")),
    "format-patch": Program(options=("-o", "--output-directory", "--output"), takes=("-n",)),
    **dict.fromkeys(("diff", "log", "show", "shortlog"), Program(options=("--output",))),
    "checkout-index": Program(options=("--prefix",)),
}
_GIT_TAKES = ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env")
_STDOUT = lazy_pattern(r"-[a-z0-9]*[ctl]|--(?:stdout|to-stdout|test|list)")
IN_PLACE = lazy_pattern(r"-[nErsuz]*i|--in-place")
"""The option of `sed` that changes the files it names."""
_PERL_IN_PLACE = lazy_pattern(r"-[a-zA-Z0]*i")
_SED_WRITES = lazy_pattern(r"(?:^|[;{}\n\d$/!])\s*[wW]\s*([^\s;}]+)|/[gpiImMe\d]{0,9}w\s*([^\s;}]+)")

# Programs that run the command in their arguments, with the letters of their options that take a value.
WRAPPERS: Mapping[str, str] = {
    **dict.fromkeys(("command", "builtin", "nohup", "busybox", "setsid", "coproc", "taskset", "prlimit"), ""),
    "sudo": "ugChpDRTU",
    "doas": "uC",
    "env": "uCS",
    "exec": "a",
    "nice": "n",
    "ionice": "cn",
    "time": "fo",
    "timeout": "sk",
    "stdbuf": "ioe",
    "chrt": "TPD",
    "xargs": "IaEdLnPs",
}


def unwrapped(words: Sequence[Word]) -> Sequence[Word]:
    """The command without a leading sudo, env or the like and their options."""
    at = 0
    while at < len(words) and (takes := WRAPPERS.get(words[at].program)) is not None:
        at += 1
        while at < len(words) and _is_option(words[at].text):
            option = words[at].text
            at += 2 if len(option) == 2 and option[0] == "-" and option[1] in takes else 1
    return words[at:]


def _is_option(text: str) -> bool:
    return text.startswith("-") or "=" in text or text.rstrip("smh").isdigit()


def named_targets(words: Sequence[Word]) -> Iterator[Word]:
    """The words that name what a command writes to."""
    if not words:
        return
    name = words[0].program
    if name == "git":
        yield from _of_git(words)
    elif name == "tar":
        yield from _of_tar(words)
    elif name == "find":
        yield from _of_find(words)
    elif name == "dd":
        yield from (word.after(3) for word in words[1:] if word.text.startswith("of="))
    elif name in ("sed", "perl"):
        yield from _of_editor(words)
    elif name in PROGRAMS and not (
        PROGRAMS[name] is _PACKED and any(_STDOUT.match(w.text) for w in words[1:])
    ):
        yield from _of_program(words, PROGRAMS[name])


def _of_program(words: Sequence[Word], program: Program) -> Iterator[Word]:
    name = words[0].program
    yield from option_values(words, program.options, program.takes)
    plain = list(plain_words(words[1:], (*program.options, *program.takes)))
    if name == "install" and any(re.match(r"-[a-zA-Z]*d|--directory", word.text) for word in words[1:]):
        yield from plain
    elif name == "mktemp" and not any(word.text[:2] in ("-p", "--") for word in words[1:]):
        yield from (word for word in plain if "/" in word.text)
    elif len(plain) >= program.least:
        into = program.plain == _LAST and any(option_values(words, program.options, program.takes))
        remote = name in ("scp", "rsync")
        yield from (
            word
            for word in ([] if into else plain[program.plain])
            if not (remote and re.match(r"[\w.@-]+:", word.text))
        )


def _of_git(words: Sequence[Word]) -> Iterator[Word]:
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _GIT_TAKES else 1
    rest = words[at:]
    if not rest:
        return
    name, plain = rest[0].text, list(plain_words(rest[1:], ("-f", "--file", "-b", "-B")))
    if name in _GIT:
        yield from _of_program(rest, _GIT[name])
    elif (name == "worktree" and len(plain) > 1 and plain[0].text == "add") or (
        name == "bundle" and len(plain) > 1 and plain[0].text == "create"
    ):
        yield plain[1]
    elif name == "config" and len(plain) > 1:
        yield from option_values(rest, ("-f", "--file"))
        if any(word.text == "--global" for word in rest):
            yield Word("~/.gitconfig", "b" * 12)


def _of_tar(words: Sequence[Word]) -> Iterator[Word]:
    given = list(words[1:])
    if given and not given[0].text.startswith("-"):
        # The old form: letters, and their values in the same order.
        letters = given.pop(0).text
        values = [letter for letter in letters if letter in "fCbIgTX"]
        changed = [Word(f"-{letter}", "bb") for letter in letters if letter not in values]
        pairs = zip(values, given, strict=False)
        given = [*changed, *(each for letter, word in pairs for each in (Word(f"-{letter}", "bb"), word))]
        given += list(words[2 + len(values) :])
    letters = "".join(each.text[1:] for each in given if re.match(r"-[a-zA-Z]", each.text))
    longs = {each.text for each in given}
    takes = ("-b", "-I", "-g", "-T", "-X", "--exclude")
    if (
        "x" in letters.partition("f")[0] + letters.partition("C")[0]
        or "--extract" in longs
        or "--get" in longs
    ):
        yield from option_values(given, ("-C", "--directory"), ("-f", "--file", *takes))
    elif re.match(r"[a-zA-Z]*[cruA]", letters) or not longs.isdisjoint({"--create", "--append", "--update"}):
        yield from option_values(given, ("-f", "--file"), ("-C", "--directory", *takes))


def _of_find(words: Sequence[Word]) -> Iterator[Word]:
    texts = [word.text for word in words]
    start = next((at for at, text in enumerate(texts) if at and text[:1] in ("-", "(", "!")), len(words))
    roots = words[1:start] or [Word(".", "b")]
    for at, text in enumerate(texts[:-1]):
        if text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield words[at + 1]
    for inner in found_commands(words):
        for root in roots[:8]:
            yield from named_targets(unwrapped([root if word.text == "{}" else word for word in inner]))
    if "-delete" in texts:
        yield from roots


def found_commands(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """The commands that find is told to run."""
    for at, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words))
            yield words[at + 1 : end]


def _of_editor(words: Sequence[Word]) -> Iterator[Word]:
    given = words[1:]
    if words[0].program == "perl":
        if any(_PERL_IN_PLACE.match(word.text) for word in given):
            coded = any(re.match(r"-[a-zA-Z0]*e", word.text) for word in given)
            yield from list(plain_words(given, ("-e", "-pe", "-ne", "-pie", "-M", "-i")))[0 if coded else 1 :]
        return
    scripts = list(option_values(words, ("-e", "--expression")))
    plain = list(plain_words(given, ("-e", "-f", "--expression", "--file")))
    if any(IN_PLACE.match(word.text) for word in given):
        yield from plain if scripts else plain[1:]
    for script in scripts or plain[:1]:
        for found in _SED_WRITES.finditer(script.text):
            text = found[1] or found[2]
            yield Word(text, "q" * len(text))


def option_values(
    words: Sequence[Word], options: Iterable[str], others: Iterable[str] = ()
) -> Iterator[Word]:
    """The values of some options, in each of the ways to write them. `others` take a value too."""
    wanted = frozenset(options)
    for option, value in _options(words, (*wanted, *others)):
        if option in wanted and value is not None:
            yield value


def plain_words(words: Sequence[Word], options: Iterable[str]) -> Iterator[Word]:
    """The arguments that are neither options nor their values."""
    taking = tuple(options)
    at, only = 0, False
    while at < len(words):
        text = words[at].text
        if text == "--" and not only:
            only = True
        elif only or not text.startswith("-") or text == "-":
            yield words[at]
        else:
            option, inside = _valued(text, taking)
            at += 1 if option and inside is None else 0
        at += 1


def _options(words: Sequence[Word], taking: Sequence[str]) -> Iterator[tuple[str, Word | None]]:
    for at, word in enumerate(words):
        option, inside = _valued(word.text, taking)
        if option and inside is not None:
            yield option, word.after(inside)
        elif option:
            yield option, words[at + 1] if at + 1 < len(words) else None


def _valued(text: str, taking: Sequence[str]) -> tuple[str, int | None]:
    """The option with a value that a word ends in, and where its value begins; None if that is the next word."""
    if text.startswith("--"):
        name, sign, _ = text.partition("=")
        meant = [each for each in taking if each == name] or [
            each for each in taking if each.startswith(name)
        ]
        return (meant[0], len(name) + 1 if sign else None) if meant and len(name) > 2 else ("", None)
    if text[:1] != "-":
        return "", None
    for at, letter in enumerate(text[1:], 1):
        if f"-{letter}" in taking:
            return f"-{letter}", at + 1 if at + 1 < len(text) else None
        if not letter.isalnum():
            break
    return "", None


def shell_texts(words: Sequence[Word]) -> list[str]:
    """The shell text passed to a shell, to eval, or to a program that runs one."""
    if not words:
        return []
    name, texts = words[0].program, [word.text for word in words]
    if name == "eval":
        return [" ".join(texts[1:])]
    if name == "trap":
        return texts[1:2]
    if name in ("script", "flock", "su", "runuser"):
        return [word.text for word in option_values(words, ("-c", "--command"))]
    if name not in SHELLS:
        return []
    at = shell_text_at(texts)
    return texts[at : at + 1] if at else []


def shell_text_at(texts: Sequence[str]) -> int:
    """The place of the text behind a shell's `-c`; 0 if there is none."""
    told = next((at for at, text in enumerate(texts) if re.fullmatch(r"-[a-z]*c[a-z]*", text)), None)
    if told is None:
        return 0
    return next((at for at in range(told + 1, len(texts)) if not texts[at].startswith("-")), 0)
