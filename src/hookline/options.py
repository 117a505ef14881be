"""The command line's options as values: one class a command, each option declared once with its help.

`systems` names the systems for which an option means something; given for another one it is refused, because an
option that is silently ignored may be a guard that the user counts on.

The classes are neither frozen nor comparable: generating those methods would slow the start of every command.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hookline.errors import FileError, UsageError

WORKFLOW = "a WORKFLOW.md"
AGENTRUN = "an AgentRun manifest"
AGENT = "an agent in Python or a kagent manifest"

KUBERNETES = "kubernetes"

FILE = "agent.py or a kagent agent.yaml (with :NAME if it has several agents), or module:name"
_NO_PROJECT = "leave the project's hookline.yaml out, which is on record"
_SOURCE = "REF=SOURCE: where a hook image comes from, a path or another reference"
_READY_TOOL = "a ready tool in addition to those of a manifest, such as bash"
_CONTEXT = "the context of the kubeconfig [default: the current one]"
_KUBECONFIG = "the kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's own]"


GIVEN: dict[str, str] = {}
"""The variables that the command line has set in this process."""


class OptionDetails(TypedDict, total=False):
    """More about an option: its short and its other name, the systems it is for, its bounds."""

    short: str
    name: str
    systems: tuple[str, ...]
    least: int
    most: int
    required: bool
    hidden: bool
    positional: bool


def option(help: str, default: Any = "", **details: Unpack[OptionDetails]) -> Any:
    """A named option, of the type that the field has: a text, a number, a path, a flag, or texts, given one by one."""
    return field(default=default, metadata={"help": help, **details})


def argument(help: str, default: Any = "", *, required: bool = False) -> Any:
    """A positional argument; one of several texts takes all that are left."""
    return option(help, default, required=required, positional=True)


def flag(help: str, **details: Unpack[OptionDetails]) -> Any:
    return option(help, False, **details)


@dataclass(kw_only=True, eq=False, repr=False)
class EnvOptions:
    """Variables that are set before a file is loaded."""

    env: tuple[str, ...] = option("NAME=VALUE, set before the file is loaded", ())
    env_file: Path | None = option("a file of NAME=VALUE lines", None)

    def set_environment(self) -> None:
        """Set these variables in this process."""
        GIVEN.update(self.variables())
        os.environ.update(GIVEN)

    def variables(self) -> dict[str, str]:
        found = _variables(self.env_file) if self.env_file is not None else {}
        for pair in self.env:
            name, equals, value = pair.partition("=")
            if not equals:
                raise UsageError(f"--env {pair!r} is not NAME=VALUE")
            found[name] = value
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class ClusterOptions:
    """Runs of a cluster, and of which one."""

    on: str = option("kubernetes, for runs on a cluster")
    namespace: str = option("the namespace on the cluster [default: the context's]", short="-n")
    context: str = option(_CONTEXT)
    kubeconfig: str = option(_KUBECONFIG)


@dataclass(kw_only=True, eq=False, repr=False)
class Target:
    """A cluster, and a namespace there."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    def words(self, namespace: str = "") -> str:
        """The options that name this cluster to another command."""
        import shlex

        given = {
            "--namespace": namespace or self.namespace,
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
        }
        parts = [f"{name} {shlex.quote(value)}" for name, value in given.items() if value]
        return " ".join([f"--on {KUBERNETES}", *parts])


@dataclass(kw_only=True, eq=False, repr=False)
class CheckOptions(EnvOptions):
    """The files to check, and what holds around them."""

    files: tuple[str, ...] = argument(FILE, (), required=True)
    hooks: tuple[str, ...] = option("a file with more hooks", ())
    no_project_hooks: bool = flag(_NO_PROJECT)
    image: tuple[str, ...] = option(_SOURCE, ())
    strict: bool = flag("fail for warnings too")
    json: bool = flag("print JSON")


@dataclass(kw_only=True, eq=False, repr=False)
class ExplainOptions(EnvOptions):
    """The file to explain, and where it would run."""

    file: str = argument(FILE, required=True)
    hooks: tuple[str, ...] = option("a file with more hooks", ())
    no_project_hooks: bool = flag(_NO_PROJECT)
    framework: str = option("show what this agent framework lets hooks cover: adk", name="--for")
    persona: str = option("the member of a pack")
    on: str = option("where hooks would run: local, sandbox, container or kubernetes")
    json: bool = flag("print JSON")


@dataclass(kw_only=True, eq=False, repr=False)
class TryOptions:
    """A made-up event, or those of a past run, and the file that is asked."""

    point: str = argument("a point such as tool.start; or `all`, with --from", required=True)
    file: str = argument(FILE, required=True)
    tool: str = option("the tool, for tool points")
    input: str = option("the payload, as JSON (or the agent's input as text)")
    output: str = option("the output, as JSON or text, for end points")
    status: str = option("the status, for end points", "ok")
    past_run: str = option("replay the events of this past run", name="--from")
    hooks: tuple[str, ...] = option("a file with more hooks", ())
    no_project_hooks: bool = flag(_NO_PROJECT)
    image: tuple[str, ...] = option(_SOURCE, ())
    json: bool = flag("print JSON")


@dataclass(kw_only=True, eq=False, repr=False)
class RunOptions(EnvOptions):
    """One run of a file: of an agent, an issue or an AgentRun."""

    file: str = argument(f"{FILE}; a WORKFLOW.md; an AgentRun manifest")
    input: str = argument("the agent's input; - reads it from standard input")
    hooks: tuple[str, ...] = option("a file with more hooks, for every agent of the run", ())
    no_project_hooks: bool = flag(_NO_PROJECT)
    model: str = option("use another model: provider/name, or scripted/FILE", systems=(AGENTRUN, AGENT))
    image: tuple[str, ...] = option(
        f"{_SOURCE}; NAME: the image of hooks with --on container, of pods with --on kubernetes",
        (),
        systems=(AGENT, WORKFLOW),
    )
    tools: tuple[str, ...] = option(_READY_TOOL, (), systems=(AGENT,))
    workspace: Path | None = option(
        "the folder that ready tools work in [default: the current one]", None, systems=(AGENT,)
    )
    timeout: float | None = option("limit of the whole run in seconds", None, systems=(AGENT,))
    issue: str = option("the issue to work on, for a WORKFLOW.md", systems=(WORKFLOW,))
    strict: bool = flag("treat warnings as errors", systems=(WORKFLOW,))
    persona: str = option("the member of a pack", systems=(AGENTRUN,))
    on: str = option(
        "where hooks run: local, sandbox or container [default: sandbox for an AgentRun, else local];"
        " kubernetes runs all of an AgentRun or of a Python agent on a cluster"
    )
    secrets: Path | None = option("a file with the values for secretKeyRef", None, systems=(AGENTRUN,))
    agent_command: str = option(
        "the command of an AgentRun's agent [default: the built-in agent]", systems=(AGENTRUN,)
    )
    agent_image: str = option("the image that --agent-command runs in", systems=(AGENTRUN,))
    network: bool = flag("allow network access in a sandbox or a container")
    mount: tuple[str, ...] = option("DIR[:TARGET[:rw]]: mount a folder into a sandbox or a container", ())
    workspace_size: str = option(
        "size limit of an AgentRun's /workspace, such as 2Gi [default: 1Gi]", systems=(AGENTRUN,)
    )
    name: str = option("the name of the AgentRun", systems=(AGENTRUN,))
    namespace: str = option("the namespace on the cluster", short="-n", systems=(AGENTRUN, AGENT))
    context: str = option(_CONTEXT, systems=(AGENTRUN, AGENT))
    kubeconfig: str = option(_KUBECONFIG, systems=(AGENTRUN, AGENT))
    resume: str = option("finish this AgentRun, which was broken off")
    secret: tuple[str, ...] = option(
        "with --on kubernetes: a Secret whose keys become environment variables of a Python agent",
        (),
        systems=(AGENT,),
    )
    records: bool = flag("print the records for the program that started this pod", hidden=True)
    session: str = option("the session's id", systems=(AGENT,))
    user: str = option("the user's id, for hooks to read", systems=(AGENT,))
    ask: str = option(
        "who answers questions: terminal, journal (hookline approve) or refuse", systems=(AGENTRUN, AGENT)
    )
    code_to: Path | None = option(
        "where the codes of questions are shown, for who answers from another terminal [default: this terminal]",
        None,
        systems=(AGENTRUN, AGENT),
    )
    json: bool = flag("print records as JSON lines on standard output")
    quiet: bool = flag("print only the answer", short="-q")


@dataclass(kw_only=True, eq=False, repr=False)
class ServeOptions:
    """A file to be served until it is stopped."""

    file: str = argument(f"WORKFLOW.md [default: the one in this folder]; or {FILE}")
    hooks: tuple[str, ...] = option("a file with more hooks, for every attempt or message", ())
    no_project_hooks: bool = flag(_NO_PROJECT)
    port: int | None = option(
        "the HTTP port of the state or of the agent; 0 picks a free one [default for an agent: 8080]",
        None,
    )
    host: str = option("the address to listen on, for an agent [default: 127.0.0.1]", systems=(AGENT,))
    token_file: Path | None = option("a file with the token that clients must send", None)
    no_token: bool = flag("serve without a token, also beyond this machine")
    url: str = option("the public URL of this server, for its agent card", systems=(AGENT,))
    model: str = option("use another model: provider/name, or scripted/FILE", systems=(AGENT,))
    image: tuple[str, ...] = option(
        f"{_SOURCE}; NAME: the image of the pods, with --on kubernetes",
        (),
    )
    tools: tuple[str, ...] = option(_READY_TOOL, (), systems=(AGENT,))
    session_idle: float | None = option(
        "seconds after which an idle session ends [default: 1800]", None, systems=(AGENT,)
    )
    on: str = option("kubernetes: run each attempt at an issue as a Job", systems=(WORKFLOW,))
    namespace: str = option(
        "the namespace on the cluster [default: the context's]", short="-n", systems=(WORKFLOW,)
    )
    context: str = option(_CONTEXT, systems=(WORKFLOW,))
    kubeconfig: str = option(_KUBECONFIG, systems=(WORKFLOW,))
    secret: tuple[str, ...] = option(
        "a Secret whose keys become environment variables of the pods", (), systems=(WORKFLOW,)
    )
    storage_size: str = option("size of each workspace's volume [default: 1Gi]", systems=(WORKFLOW,))
    storage_class: str = option(
        "storage class of each workspace's volume [default: the cluster's]", systems=(WORKFLOW,)
    )
    open_volume_as_root: bool = flag(
        "open volumes as root, for those that ignore fsGroup", systems=(WORKFLOW,)
    )
    strict: bool = flag("treat warnings as errors", systems=(WORKFLOW,))
    json: bool = flag("print the state as JSON lines on standard output")
    quiet: bool = flag("print only warnings", short="-q")


@dataclass(kw_only=True, eq=False, repr=False)
class OperatorOptions:
    """The operator's settings, however it is started. Where no image for agents is given, they run in its own."""

    image: str = option("hookline's own image, built from deploy/Containerfile (required)")
    agent_image: str = option("the image agents run in [default: hookline's own]")
    shared_account: bool = flag("bind lifecycle.rbac to the account sympozium-agent instead of one per run")
    """As the seed writes it: the account of a namespace, instead of one of the run's own."""
    max_run_history: int = option("how many finished runs of an agent to keep", 50, least=0)
    agent_command: str = option("the command that agents run [default: the built-in agent]")
    workspace_size: str = option("size of the volume that a run's hooks share", "1Gi")
    storage_class: str = option("storage class of that volume [default: the cluster's]")
    prepare_as_root: bool = flag(
        "create a volume's folders as root, for volumes that ignore fsGroup (host paths, some NFS)"
    )
    """Our first container makes them as root, without any capability; hooks and agent do not run as root."""
    kagent: bool = flag("reconcile kagent Agents too: those that have hooks, or those selected")
    kagent_selector: str = option("LABEL=VALUE: reconcile only the Agents with this label")
    kagent_account: tuple[str, ...] = option("a ServiceAccount that kagent Agents may name", ())
    kagent_client: tuple[str, ...] = option(
        "a namespace whose pods may talk to kagent Agents, besides the Agent's own", ()
    )
    plain_registry: tuple[str, ...] = option("HOST:PORT that hook images may be fetched from without TLS", ())
    labelled_secrets: bool = flag("let AgentRuns name only Secrets with the label hookline.dev/for-runs=true")
    all_namespaces: bool = flag("work in all namespaces, except those of the system (kube-system, ...)")


@dataclass(kw_only=True, eq=False, repr=False)
class Installation(OperatorOptions):
    """An operator as it is installed in a cluster. It has rights in the namespaces that it watches, by default its own."""

    namespace: str = option("the namespace of the operator itself", "hookline-system")
    watch: tuple[str, ...] = option(
        "a namespace to work in; may be repeated [default: the operator's own]", ()
    )
    replicas: int = option("number of replicas, of which one is the leader", 2, least=1)
    without_crds: bool = flag("leave out the CustomResourceDefinitions")
    json: bool = flag("print one List as JSON")


def refuse_foreign(options: Any, system: str) -> None:
    """Refuse each option that was given and means nothing for a file of this system."""
    useless: dict[str, list[str]] = {}
    for each in fields(options):
        systems = each.metadata.get("systems") or ()
        if systems and system not in systems and getattr(options, each.name):
            useless.setdefault(systems[0], []).append(option_name(each.name, each.metadata))
    for other, names in useless.items():
        raise UsageError(f"{', '.join(names)}: only for {other}; the file is {system}")


def refuse_given(options: Any, names: tuple[str, ...], why: str) -> None:
    """Refuse those of the named options that were given."""
    useless = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if useless:
        raise UsageError(f"{', '.join(useless)}: {why}")


def target_of(options: ClusterOptions | RunOptions) -> Target | None:
    """The cluster that the options name; None for this machine, where cluster options are refused."""
    if options.on == KUBERNETES:
        return Target(namespace=options.namespace, context=options.context, kubeconfig=options.kubeconfig)
    refuse_given(options, ("context", "kubeconfig"), f"only with --on {KUBERNETES}")
    return None


def target_of_runs(options: ClusterOptions) -> Target | None:
    """The cluster whose runs the options name; None for runs of this machine."""
    if options.on not in ("", KUBERNETES):
        raise UsageError(
            f"--on is {options.on!r}; known: {KUBERNETES}; leave it out for runs of this machine"
        )
    if not options.on:
        refuse_given(options, ("namespace",), f"only with --on {KUBERNETES}")
    return target_of(options)


def option_name(field_name: str, metadata: Any) -> str:
    """The option as it is written on the command line."""
    return metadata.get("name") or f"--{field_name.replace('_', '-')}"


def words_of(command: str, option: str) -> list[str]:
    """The words of a command that an option has, split as a shell would."""
    import shlex

    try:
        return shlex.split(command)
    except ValueError as exc:
        raise UsageError(f"{option} {command!r} cannot be split into words: {str(exc).lower()}") from None


def _variables(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text().splitlines()
    except OSError as exc:
        raise FileError(exc.strerror or str(exc), file=file) from exc
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise FileError(f"{line!r} is not NAME=VALUE", file=file, line=number)
        found[name.strip()] = value.strip().strip("\"'")
    return found
