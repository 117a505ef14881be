"""agent.py as a system. It also runs, serves and explains what other formats load as an agent: `load` finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hookline.agent.loaded import Loaded
from hookline.engine.hook import Hook
from hookline.options import AGENT, CheckOptions, ExplainOptions, RunOptions, ServeOptions, TryOptions
from hookline.pyagent.run import Loader
from hookline.terminal import Explained, Problems

NAME = AGENT


def matches(target: str) -> bool:
    """A Python file or a module, with or without the name of an agent in it."""
    return bool(target)


def load(target: str) -> Loaded:
    from hookline.pyagent.load import load

    return load(target)


def problems(target: str, options: CheckOptions, hooks: Sequence[Hook]) -> Problems:
    return agent_problems(load(target), options, hooks)


def agent_problems(loaded: Loaded, options: CheckOptions, hooks: Sequence[Hook]) -> Problems:
    """Everything that is wrong with an agent of any format."""
    from hookline.pyagent.load import problems

    wrong, notes = asyncio.run(loaded.check_images(options.image))
    return Problems([*wrong, *problems(loaded, hooks)], notes)


def explain(options: ExplainOptions, load: Loader) -> Explained:
    from hookline.pyagent.explain import explain_agent

    return explain_agent(load(options.file), options)


def try_(options: TryOptions, load: Loader) -> int:
    from hookline.pyagent.try_ import try_agent

    return try_agent(load(options.file), options)


def run(options: RunOptions, load: Loader) -> int:
    from hookline.kube.connect import target_of
    from hookline.options import KUBERNETES, refuse_given

    target = target_of(options)
    if target is not None:
        from hookline.pyagent.cluster import run_there

        useless = ("network", "mount", "tools", "workspace")
        refuse_given(options, useless, f"this does not go with --on {KUBERNETES}")
        return run_there(options, target)
    refuse_given(options, ("namespace", "secret"), f"this goes with --on {KUBERNETES}")
    from hookline.pyagent.run import run_agent

    return run_agent(load(options.file), options, load)


def serve(options: ServeOptions, load: Loader) -> int:
    from hookline.pyagent.serve import serve_agent

    return serve_agent(options, load)
