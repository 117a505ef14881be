"""`hookline check` and `hookline explain` of AgentRun manifests: commands that cannot work, and the hooks that will run.

Mistakes are found in the text of a hook's command; nothing of it is run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from hookline.errors import FileError
from hookline.kube.objects import Object, items, within
from hookline.options import KUBERNETES, ExplainOptions, OperatorOptions
from hookline.runners import Capabilities, Order
from hookline.runners.places import PLACES, known_place
from hookline.secrets import secret_words
from hookline.source import text_of
from hookline.sympozium.environment import LONGEST_VARIABLE, script_at, too_long
from hookline.sympozium.phases import Seen
from hookline.sympozium.policy import Policy, breaches, permitted, policy_of, unbound, without_effect
from hookline.sympozium.read import RunManifests, parse
from hookline.sympozium.resolve import RunRequest, declaration, spec_of, with_instance
from hookline.sympozium.run.folders import IPC_SIZE, TMP_SIZE, WORKSPACE_SIZE, shown
from hookline.sympozium.types import RESERVED, ContainerHook, Instance, Lifecycle, RunSpec
from hookline.table import Location
from hookline.terminal import Explained, ExplainedHook, Problem, problems_of

_OF_A_LOGIN = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM", "TMPDIR")
_OF_A_LOCALE = ("LANG", "LC_ALL", "TZ")
_OF_A_SHELL = ("PWD", "OLDPWD", "IFS", "PS1", "PS4", "PPID", "UID", "EUID", "GID", "PIPESTATUS")
_OF_BUILTINS = ("RANDOM", "SECONDS", "LINENO", "OPTARG", "OPTIND", "REPLY")
_OF_A_POD = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_ALWAYS_THERE = frozenset({*_OF_A_LOGIN, *_OF_A_LOCALE, *_OF_A_SHELL, *_OF_BUILTINS, *_OF_A_POD})
_AFTER_ONLY = frozenset({"AGENT_EXIT_CODE", "AGENT_RESULT", "GATE_MODE"})
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
    "rbac": "is not used on one machine: it grants access to a cluster; here hooks have your own rights",
    "mode": "mode: server is not used on one machine: the run is done once, as a task",
}
_HEEDED = ("agentSandbox", "imagePullSecrets")
"""Keys that have no effect on a user's machine, and have one on a cluster."""
_LITERAL = {"/workspace": "WORKSPACE", "/ipc": "IPC_DIR"}
_TOLD = (*_LITERAL.values(), "TMPDIR")
_UNKNOWN = "IMAGE"
_QUOTA = (
    f"/workspace may hold {shown(WORKSPACE_SIZE)} (--workspace-size), /ipc {shown(IPC_SIZE)},"
    f" /tmp {shown(TMP_SIZE)}; a hook or an agent that writes more is ended"
)


def problems_in(file: str, env: Mapping[str, str], others: Iterable[str] = ()) -> list[Problem]:
    """The mistakes in a manifest, and warnings.

    `env` are the variables of the command line; those of this process do not reach any hook. A policy may be in one of
    the `others`, which are checked too.
    """
    manifests = parse(text_of(file), file)
    policies = [policy for each in (file, *others) for policy in parse(text_of(each), each).policies]
    wrong = [*manifests.problems, *_beyond_policy(manifests, policies)]
    runs = (*manifests.runs, *manifests.agents)
    notes = [*manifests.remarks]
    notes += [note for run in runs for note in literal_secrets(run.hooks)]
    notes += [note for run in runs for note in unbound(run)]
    notes += [note for run in runs for note in not_here(run)]
    notes += [note for pack in manifests.packs for note in _of_cluster(pack.elsewhere)]
    # Commands that upstream takes as they are: whatever they do, the manifest is right.
    notes += [doubt for run in runs for doubt in doubts(run, {*_TOLD, *env})]
    return problems_of(wrong, notes, file)


def explain_agentrun(options: ExplainOptions) -> Explained:
    file = options.file
    asked = RunRequest(
        file=file,
        text=text_of(file),
        task="-",
        persona=options.persona,
        env=options.variables(),
        on=KUBERNETES if options.on == KUBERNETES else known_place(options.on or "sandbox"),
    )
    spec = spec_of(asked)
    if asked.on == KUBERNETES:
        return _explain_there(file, spec)
    declared = declaration(spec)
    notes = [*parse(asked.text, file).notes, *notes_before(spec, asked), _QUOTA]
    agent = declared.agent
    head = [f"{file} ({declared.format}), on {asked.on}"]
    if agent is not None:
        head.append(f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}")
    if spec.policy:
        head.append(f"policy {spec.policy}")
    if spec.tools_allowed or spec.tools_denied:
        head.append(f"tools: {', '.join(permitted(spec.tools_allowed, spec.tools_denied)) or 'none'}")
    hooks: list[ExplainedHook] = []
    heading, number = "", 0
    for hook in declared.hooks:
        number += 1
        if heading != (heading := f"{hook.points[0]} ({hook.params['stage']})"):
            number = 1
        gate = ", holds the answer back until a verdict" if hook.params.get("gate") else ""
        text = (
            f"{number}. {hook.name}  container {hook.params['image']}  limit {hook.timeout:g} s,"
            f" on error {hook.on_error}{gate}"
        )
        hooks.append(ExplainedHook(heading, text, str(hook.source)))
    value = {"declaration": declared.to_dict(), "on": asked.on, "notes": notes}
    return Explained(head=head, hooks=hooks, notes=notes, value=value)


def _explain_there(file: str, spec: RunSpec) -> Explained:
    """The objects of a cluster that a run comes to, and which containers run in which order."""
    made = _objects(spec)
    return Explained(
        head=[f"{file}, on {KUBERNETES}"],
        hooks=[
            ExplainedHook(f"{each['kind']} {each['metadata']['name']}", line, "")
            for each in made
            for line in _parts(each)
        ],
        notes=[],
        value={"on": KUBERNETES, "objects": made},
    )


def _objects(spec: RunSpec) -> list[Object]:
    """The objects as the operator would make them; only it knows its image, and only the cluster the run's uid."""
    from hookline.sympozium.cluster.objects import RunObjects

    objects = RunObjects(spec, "", OperatorOptions(image=_UNKNOWN))
    gate = () if spec.hooks.gate is None else (spec.hooks.gate,)
    rest = tuple(index for index in spec.hooks.post_order if index not in gate)
    after = [positions for positions in (gate, rest) if positions]
    jobs = [objects.post_job(Seen(), positions, number) for number, positions in enumerate(after, 1)]
    return [*objects.first(), *jobs]


def _parts(made: Object) -> Iterator[str]:
    spec = within(made, "spec")
    for rule in items(made.get("rules")):
        yield f"{', '.join(rule['verbs'])}: {', '.join(rule['resources'])}"
    if made["kind"] == "PersistentVolumeClaim":
        yield f"{spec['resources']['requests']['storage']}, which agent and postRun hooks share"
    pod = within(spec, "template", "spec") or within(spec, "podTemplate", "spec")
    each = [*pod.get("initContainers", ()), *pod.get("containers", ())]
    for number, container in enumerate(each, 1):
        image = "hookline's own image" if container["image"] == _UNKNOWN else container["image"]
        yield f"{number}. {container['name']}  {image}"
    if "activeDeadlineSeconds" in spec:
        yield f"ended by the cluster after {spec['activeDeadlineSeconds']} s, whatever happens"


def notes_before(spec: RunSpec, asked: RunRequest) -> list[str]:
    """Notes on a run before it begins on this machine, each once."""
    where = PLACES[asked.on]
    found = [*map(str, doubts(spec, _TOLD)), *map(str, not_here(spec))]
    found += without_effect(spec, builtin=asked.is_builtin)
    for hook in spec.hooks.containers:
        order = Order(argv=(), image=hook.image if not where.uses_image else None)
        found += where.shortfalls(order)
        found += _literal(hook, where)
    if asked.is_builtin and where.uses_image:
        found.append(
            "the built-in agent is in no image: it runs in the sandbox, or with --agent-command in one"
        )
    if not asked.network and where.isolates and spec.hooks.containers:
        found.append(f"{where.name} has no network; --network gives it to hooks and agent")
    return list(dict.fromkeys(found))


def doubts(run: Instance, known: Collection[str] = ()) -> list[FileError]:
    """The commands of hooks that cannot work as they are written.

    `known` variables are set besides those of the run, and those that every hook has.
    """
    given = {*known, *(run.env if isinstance(run, RunSpec) else ())}
    found: list[FileError] = []
    for hooks, there in ((run.hooks.pre_run, RESERVED - _AFTER_ONLY), (run.hooks.post_run, RESERVED)):
        for hook in hooks:
            found += _of_command(hook, frozenset({*there, *given, *hook.env}))
    return found


def literal_secrets(lifecycle: Lifecycle) -> Iterator[FileError]:
    """One for each secret of the hooks that is in the file, which works and should be known."""
    for hook in lifecycle.containers:
        for name, value in hook.env.items():
            if isinstance(value, str) and value and secret_words(name):
                yield hook.env_places.get(name, hook.place).problem(
                    f"{name} looks like a secret, and its value is in the file; use valueFrom.secretKeyRef",
                    "secret-in-file",
                )


def _beyond_policy(manifests: RunManifests, policies: Iterable[Policy]) -> list[FileError]:
    """One for each policy that is missing, and for each limit that a run or an agent of the file breaks."""
    found: list[FileError] = []
    known = tuple(policies)
    given: list[Instance] = [with_instance(manifests, each) for each in manifests.runs]
    for each in (*given, *manifests.agents):
        try:
            policy = policy_of(each, known)
            found += breaches(each, policy) if policy else ()
        except FileError as exc:
            found.append(exc)
    return found


def not_here(run: Instance) -> tuple[FileError, ...]:
    """One error for each thing that a run or an agent asks for and only a cluster has."""
    keys = dict(run.elsewhere)
    if run.hooks.rbac:
        place = run.hooks.place
        keys["rbac"] = place._replace(key=f"{place.key}.rbac" if place.key else "rbac")
    if isinstance(run, RunSpec) and run.mode == "server":
        keys["mode"] = run.place
    return tuple(_of_cluster(keys))


def unheeded(run: RunSpec) -> list[FileError]:
    """One for each key of a run that has no effect, on a cluster either."""
    places = [place for key, place in run.elsewhere.items() if key not in _HEEDED]
    told = [place.problem("has no effect: hookline's operator does not support it") for place in places]
    return [*told, *unbound(run)]


def unrunnable(run: RunSpec, *, builtin: bool) -> str:
    """The reason that a run would fail for certain on a cluster; empty where there is none."""
    model = run.model
    if run.mode == "server":
        return "mode: server is not supported here; only runs with mode: task have hooks"
    if run.sandbox and run.sandbox.enabled and run.sandbox.warm_pool:
        return "agentSandbox.warmPoolRef: a pod that runs already takes no hooks; leave it out"
    if builtin and not run.dry_run and not (model and model.model):
        ref = f"; {model.ref!r} is a Model, which is not read here" if model and model.ref else ""
        return f"the built-in agent has no model{ref}; write model: {{provider, model}}"
    if long := too_long(run):
        return f"{', '.join(long)}: a variable holds at most {LONGEST_VARIABLE // 1024} KiB"
    return ""


def _literal(hook: ContainerHook, where: Capabilities) -> Iterator[str]:
    """Where there is no file system of its own, a path that is written out leads elsewhere."""
    if where.isolates:
        return
    for place, variable in _LITERAL.items():
        if any(place in word for word in (*hook.command, *hook.args)):
            told = hook.place.problem(
                f"hook {hook.name!r} names {place}, which is not a place of the run with --on {where.name};"
                f" write ${variable}, or use --on sandbox"
            )
            yield str(told)


def _of_cluster(keys: Mapping[str, Location]) -> Iterator[FileError]:
    for key, place in keys.items():
        told = _HERE.get(key, "is not used on one machine: it applies to pods only")
        yield place.problem(told, "no-effect")


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
            ' "$AGENT_RESULT", as a word of its own',
            "script-injection",
        )
    for quoted, name in _used(text):
        if name in told:
            continue
        if quoted and name in names | own:
            told.add(name)
            yield place.problem(
                f"${name} is in single quotes, where the shell does not expand it;"
                f" write it in double quotes, or close the quotes around it: '...'\"${name}\"'...'",
                "not-expanded",
            )
        elif not quoted and name not in names | own | _ALWAYS_THERE and not name.startswith("HOOKLINE_"):
            told.add(name)
            yield place.problem(
                f"${name} is not set, unless the image sets it; set it with --env {name}=..., in spec.env"
                " or in the hook's env",
                "unset-variable",
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
            f"{found.group()} is not expanded: this command runs without a shell;"
            ' write it as ["sh", "-c", "..."]',
            "not-expanded",
        )
    for found in re.finditer(rf"(?<!\$)\$\{{?({_NAME})\}}?", text):
        if found[1] in names:
            yield place.problem(
                f"{found.group()} is not expanded: this command runs without a shell; write $({found[1]})",
                "not-expanded",
            )
