"""`hookline run`: knows a file by its content, and has it run by who knows that format."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hookline.errors import UsageError
from hookline.kube.connect import CONTEXT, KUBECONFIG, KUBERNETES, chosen_cluster
from hookline.pyagent.run import FILE, IMAGES, run_agent, set_environment
from hookline.systems import is_agentrun, is_workflow

__all__ = ["run"]

WORKFLOW = "a WORKFLOW.md"
AGENTRUN = "an AgentRun manifest"
AGENT = "an agent in Python or a kagent manifest"


def run(
    file: Annotated[str, typer.Argument(help=f"{FILE}; a WORKFLOW.md; an AgentRun manifest")] = "",
    input: Annotated[
        str, typer.Argument(help="what the agent is asked; - reads it from standard input")
    ] = "",
    hooks: Annotated[
        list[str] | None, typer.Option(help="a file with more hooks, for every agent of the run")
    ] = None,
    model: Annotated[str, typer.Option(help="another model: provider/name, or scripted/FILE")] = "",
    image: IMAGES = None,
    tools: Annotated[
        list[str] | None, typer.Option(help="a ready tool besides those of a manifest, such as bash")
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option(help="the folder that ready tools work in [default: the current one]")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="seconds for the whole run")] = None,
    issue: Annotated[str, typer.Option(help="the issue to work on, for a WORKFLOW.md")] = "",
    strict: Annotated[bool, typer.Option(help="refuse what is otherwise only warned about")] = False,
    persona: Annotated[str, typer.Option(help="which member, of a pack")] = "",
    on: Annotated[
        str,
        typer.Option(
            help="where hooks run: local, sandbox or container [an AgentRun's: sandbox; others: local];"
            " kubernetes: all of an AgentRun or of an agent in Python runs there"
        ),
    ] = "",
    secrets: Annotated[Path | None, typer.Option(help="a file with what secretKeyRef names")] = None,
    agent_command: Annotated[
        str, typer.Option(help="the agent of an AgentRun, instead of the built-in one")
    ] = "",
    agent_image: Annotated[str, typer.Option(help="the image that this command runs in")] = "",
    network: Annotated[
        bool, typer.Option(help="give the network to what runs in a sandbox or a container")
    ] = False,
    mount: Annotated[
        list[str] | None, typer.Option(help="DIR[:TARGET[:rw]]: a folder for a sandbox or a container")
    ] = None,
    workspace_size: Annotated[
        str, typer.Option(help="the most that an AgentRun's /workspace may hold, such as 2Gi [default: 1Gi]")
    ] = "",
    name: Annotated[str, typer.Option(help="the name of the AgentRun")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="its namespace")] = "",
    context: CONTEXT = "",
    kubeconfig: KUBECONFIG = "",
    resume: Annotated[str, typer.Option(help="end this AgentRun, which was broken off")] = "",
    secret: Annotated[
        list[str] | None,
        typer.Option(help="a Secret on kubernetes whose keys become variables of an agent in Python"),
    ] = None,
    records: Annotated[bool, typer.Option(hidden=True)] = False,
    session: Annotated[str | None, typer.Option(help="the session's id")] = None,
    user: Annotated[str | None, typer.Option(help="the user's id, for hooks to read")] = None,
    ask: Annotated[
        str, typer.Option(help="who answers questions: terminal, journal (hookline approve) or refuse")
    ] = "",
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, set before the file is loaded")] = None,
    env_file: Annotated[Path | None, typer.Option(help="a file of NAME=VALUE lines")] = None,
    json: Annotated[bool, typer.Option("--json", help="records as JSON lines on standard output")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="only the answer")] = False,
) -> int:
    """Run an agent with all its hooks."""
    given = set_environment(env or [], env_file)
    placed: dict[str, Any] = {"on": on, "network": network, "mount": mount}
    there = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    own: dict[str, dict[str, Any]] = {
        AGENTRUN: {
            "persona": persona,
            "secrets": secrets,
            "agent-command": agent_command,
            "agent-image": agent_image,
            "workspace-size": workspace_size,
            "name": name,
            **there,
            **placed,
        },
        AGENT: {
            "image": image,
            "tools": tools,
            "workspace": workspace,
            "timeout": timeout,
            "session": session,
            "user": user,
            "secret": secret,
            **there,
            **placed,
        },
        WORKFLOW: {"issue": issue, "strict": strict, "image": image, **placed},
    }
    if resume:
        from hookline.sympozium.system import resume_agentrun

        return resume_agentrun(resume, on=on, ask=ask, json=json, quiet=quiet)
    if not file:
        raise UsageError("say which file: hookline run FILE")
    format = WORKFLOW if is_workflow(file) else AGENTRUN if is_agentrun(file) else AGENT
    _refuse_others(format, own)
    if format is WORKFLOW:
        from hookline.symphony.system import run_workflow

        return run_workflow(
            file,
            issue,
            hooks=hooks,
            strict=strict,
            on=on,
            image=image,
            network=network,
            mounts=mount,
            json=json,
            quiet=quiet,
        )
    if format is AGENTRUN:
        from hookline.sympozium.system import run_agentrun

        return run_agentrun(
            file,
            sys.stdin.read() if input == "-" else input,
            persona=persona,
            on=on,
            secrets=secrets,
            agent_command=agent_command,
            agent_image=agent_image,
            network=network,
            mounts=mount,
            workspace_size=workspace_size,
            name=name,
            namespace=namespace,
            context=context,
            kubeconfig=kubeconfig,
            hooks=hooks,
            model=model,
            ask=ask,
            env=given,
            json=json,
            quiet=quiet,
        )
    target = chosen_cluster(on, context, kubeconfig, namespace=namespace)
    if target is not None:
        from hookline.pyagent.cluster import run_there

        useless = {"--network": network, "--mount": mount, "--tools": tools, "--workspace": workspace}
        if words := [name for name, value in useless.items() if value]:
            raise UsageError(f"{', '.join(words)}: this does not go with --on {KUBERNETES}")
        return run_there(
            file,
            sys.stdin.read() if input == "-" else input,
            target=target,
            images=image or (),
            hooks=hooks or (),
            model=model,
            timeout=timeout,
            session=session,
            user=user,
            ask=ask,
            env=given,
            given=secret or (),
            json=json,
            quiet=quiet,
        )
    if namespace or secret:
        raise UsageError(f"--namespace, --secret: this goes with --on {KUBERNETES}")
    return run_agent(
        file,
        input,
        hooks=hooks,
        model=model,
        image=image,
        on=on,
        network=network,
        mounts=mount,
        tools=tools,
        workspace=workspace,
        timeout=timeout,
        session=session,
        user=user,
        ask=ask,
        json=json,
        quiet=quiet,
        records=records,
    )


def _refuse_others(format: str, own: Mapping[str, Mapping[str, Any]]) -> None:
    """An option that means nothing for this file would be a wish that nobody heard."""
    for other, options in own.items():
        useless = [f"--{name}" for name, value in options.items() if value and name not in own[format]]
        if useless:
            raise UsageError(f"{', '.join(useless)}: this is for {other}, and the file is {format}")
