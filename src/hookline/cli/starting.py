"""`hookline run`: knows a file by its content, and has it run by who knows that format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.running import FILE, IMAGES, run_agent, set_environment

__all__ = ["run"]


def run(
    file: Annotated[str, typer.Argument(help=f"{FILE}, or a WORKFLOW.md")],
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
    set_environment(env or [], env_file)
    if Path(file).suffix.lower() == ".md":
        # Here, for the service behind it takes its time to load.
        from hookline.cli.working import run_workflow

        return run_workflow(file, issue, hooks=hooks, strict=strict, json=json, quiet=quiet)
    return run_agent(
        file,
        input,
        hooks=hooks,
        model=model,
        image=image,
        tools=tools,
        workspace=workspace,
        timeout=timeout,
        session=session,
        user=user,
        ask=ask,
        json=json,
        quiet=quiet,
    )
