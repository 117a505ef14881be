"""What cannot work as it is written: found in the text of a hook's command, before anything is run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from hookline.errors import FileError
from hookline.secret_names import secret_words
from hookline.sympozium.environment import script_at
from hookline.sympozium.lifecycle import RESERVED, ContainerHook, Lifecycle
from hookline.sympozium.types import RunManifests, RunSpec
from hookline.table import Location

_ALWAYS_THERE = frozenset(
    {
        "PATH",
        "HOME",
        "PWD",
        "OLDPWD",
        "USER",
        "LOGNAME",
        "SHELL",
        "HOSTNAME",
        "TERM",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "IFS",
        "PS1",
        "PS4",
        "PPID",
        "UID",
        "EUID",
        "GID",
        "RANDOM",
        "SECONDS",
        "LINENO",
        "OPTARG",
        "OPTIND",
        "REPLY",
        "PIPESTATUS",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
    }
)
_AFTER_ONLY = ("AGENT_EXIT_CODE", "AGENT_RESULT", "GATE_MODE")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = rf"\$\{{(?P<braced>{_NAME})(?P<form>[^}}]?)|\$(?P<plain>{_NAME})"
_PIECE = re.compile(
    r"(?P<escaped>\\.)|(?P<single>'[^']*(?:'|\Z))|(?P<double>\")"
    rf"|(?P<comment>(?:(?<=[\s;|&(])|\A)#[^\n]*)|{_VARIABLE}",
    re.DOTALL,
)
_INSIDE_DOUBLE = re.compile(rf"(?P<escaped>\\.)|(?P<double>\")|{_VARIABLE}", re.DOTALL)
_IN_QUOTES = re.compile(rf"\$\{{?({_NAME})")
_READS_IT_LATER = re.compile(r"(?:\s-[a-z]*c|\beval|\btrap|\benvsubst)\s*\Z")
_SET_BY_SCRIPT = re.compile(
    rf"(?:^|[\s;&|(]|\b(?:export|local|readonly|declare)\s)({_NAME})\+?=|\bfor\s+({_NAME})\b"
    rf"|\bgetopts\s+\S+\s+({_NAME})",
    re.MULTILINE,
)
_READ = re.compile(r"\bread((?:\s+-[a-zA-Z]+)*(?:\s+[A-Za-z_][A-Za-z0-9_]*)+)")
_SUBSTITUTION = re.compile(r"(?<!\$)\$\(([^)]*)\)|`([^`]+)`")
_HERE = {
    "parent": "is not used on one machine: there is no other run above this one",
    "sandbox": "is not used on one machine: --on sandbox puts the run into one of hookline's",
    "agentSandbox": (
        "is not used on one machine: --on sandbox puts each hook and the agent into one of hookline's; the agent's"
        " is gone before postRun begins, and all see the same workspace"
    ),
    "skills": "is not used on one machine: the packs of skills are objects of a cluster",
    "imagePullSecrets": "is not used on one machine: images are pulled with your own login",
}


class Doubts(NamedTuple):
    """`problems` cannot work; `notes` work, and should be known."""

    problems: tuple[FileError, ...] = ()
    notes: tuple[str, ...] = ()


def doubts(lifecycle: Lifecycle, known: Collection[str] = ()) -> Doubts:
    """What is doubtful in the hooks, where these variables are set besides those that every hook has."""
    problems: list[FileError] = []
    notes: list[str] = []
    hidden = frozenset(_AFTER_ONLY)
    for hooks, there in ((lifecycle.pre_run, RESERVED - hidden), (lifecycle.post_run, RESERVED)):
        for hook in hooks:
            names = frozenset({*there, *known, *hook.env})
            problems += _of_command(hook, names)
            notes += _literal_secrets(hook)
    return Doubts(tuple(problems), tuple(notes))


def doubts_of_file(manifests: RunManifests, known: Collection[str] = ()) -> Doubts:
    """The same for every lifecycle in a file."""
    members = [member.instance for pack in manifests.packs for member in pack.members]
    found = [doubts(each.hooks, {*known, *each.env}) for each in manifests.runs]
    found += [
        doubts(each.lifecycle, known)
        for each in (*manifests.instances, *members)
        if each.lifecycle is not None
    ]
    return Doubts(
        tuple(problem for each in found for problem in each.problems),
        tuple(note for each in found for note in each.notes),
    )


def not_here(run: RunSpec) -> tuple[str, ...]:
    """What the run asks for that only a cluster has, one sentence each."""
    told = list(_of_cluster(run.elsewhere))
    if run.hooks.rbac:
        place = run.hooks.place
        key = f"{place.key}.rbac" if place.key else "rbac"
        told.append(
            _said(
                place._replace(key=key),
                "is not used on one machine: there is no cluster whose objects it could allow; hooks have your own rights",
            )
        )
    if run.mode == "server":
        told.append(
            _said(run.place, "mode: server is not used on one machine: the run is done once, as a task")
        )
    return tuple(told)


def not_here_of_file(manifests: RunManifests) -> tuple[str, ...]:
    """The same for every run in a file, and for the instances that runs are made of."""
    members = [member.instance for pack in manifests.packs for member in pack.members]
    told = [note for each in manifests.runs for note in not_here(each)]
    told += [note for each in (*manifests.instances, *members) for note in _of_cluster(each.elsewhere)]
    return tuple(dict.fromkeys(told))


def _of_cluster(keys: Mapping[str, Location]) -> Iterator[str]:
    for key, place in keys.items():
        yield _said(place, _HERE.get(key, "is not used on one machine: it is a matter of pods"))


def _of_command(hook: ContainerHook, names: frozenset[str]) -> Iterator[FileError]:
    argv = (*hook.command, *hook.args)
    places = hook.places or (hook.place,) * len(argv)
    script = script_at(argv)
    for index, (text, place) in enumerate(zip(argv, places, strict=True)):
        if index == script:
            yield from _of_script(text, place, names)
        elif script is None:
            yield from _without_shell(text, place, names)


def _of_script(text: str, place: Location, names: frozenset[str]) -> Iterator[FileError]:
    own = {name for found in _SET_BY_SCRIPT.findall(text) for name in found if name}
    own |= {word for found in _READ.findall(text) for word in found.split() if not word.startswith("-")}
    told: set[str] = set()
    if "$(AGENT_RESULT)" in text and "AGENT_RESULT" in names:
        yield place.problem(
            "$(AGENT_RESULT) would make what the model wrote a part of the script; write"
            ' "$AGENT_RESULT", as a word of its own'
        )
    for quoted, name in _used(text):
        if name in told:
            continue
        if quoted and name in names | own:
            told.add(name)
            yield place.problem(
                f"${name} stands in single quotes, where the shell does not fill it in;"
                f" write it in double quotes, or close the quotes around it: '...'\"${name}\"'...'"
            )
        elif not quoted and name not in names | own | _ALWAYS_THERE and not name.startswith("HOOKLINE_"):
            told.add(name)
            yield place.problem(
                f"nobody sets ${name}, unless the image does; give it with --env {name}=..., in spec.env"
                " or in the hook's env"
            )


def _used(text: str) -> Iterator[tuple[bool, str]]:
    """The variables in a script, and whether they stand in single quotes. One with a default is not asked for."""
    at, double = 0, False
    while found := (_INSIDE_DOUBLE if double else _PIECE).search(text, at):
        at = found.end()
        parts = found.groupdict()
        if parts["double"]:
            double = not double
        elif parts.get("single"):
            if not _READS_IT_LATER.search(text, 0, found.start()):
                yield from ((True, name) for name in _IN_QUOTES.findall(parts["single"]))
        elif parts["plain"]:
            yield False, parts["plain"]
        elif parts["braced"] and not _has_default(parts["form"], text[at : at + 1]):
            yield False, parts["braced"]


def _has_default(form: str, following: str) -> bool:
    """`${NAME-x}`, `${NAME:-x}` and their like have one; `${NAME:0:3}` is a part of a text."""
    return form in tuple("-+=?") or (form == ":" and following in tuple("-+=?"))


def _without_shell(text: str, place: Location, names: frozenset[str]) -> Iterator[FileError]:
    for found in _SUBSTITUTION.finditer(text):
        inner = found[1] if found[1] is not None else found[2]
        if found[1] is not None and inner in names:
            continue
        yield place.problem(
            f"{found.group()} stays as it is: this command is run without a shell;"
            ' write it as ["sh", "-c", "..."]'
        )
    for found in re.finditer(rf"(?<!\$)\$\{{?({_NAME})\}}?", text):
        if found[1] in names:
            yield place.problem(
                f"{found.group()} stays as it is: this command is run without a shell; write $({found[1]})"
            )


def _literal_secrets(hook: ContainerHook) -> Iterator[str]:
    for name, value in hook.env.items():
        if isinstance(value, str) and value and secret_words(name):
            place = hook.env_places.get(name, hook.place)
            yield _said(
                place, f"{name} looks like a secret, and its value is in the file; use valueFrom.secretKeyRef"
            )


def _said(place: Location, message: str) -> str:
    return str(place.problem(message))
