"""`hookline run`, `serve` and `try`: the system of the file carries them out."""

from __future__ import annotations

from hookline import systems
from hookline.errors import UsageError
from hookline.options import RunOptions, ServeOptions, TryOptions


def run(options: RunOptions) -> int:
    options.set_environment()
    if options.resume:
        from hookline.sympozium.run.command import resume_agentrun

        return resume_agentrun(options)
    if not options.file:
        raise UsageError("say which file: hookline run FILE")
    return systems.run(options)


COMMANDS = {
    "run": (RunOptions, run),
    "serve": (ServeOptions, systems.serve),
    "try": (TryOptions, systems.try_),
}
