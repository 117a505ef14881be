"""`hookline serve` of an agent: answers messages over A2A until it is stopped, with all its hooks."""

from __future__ import annotations

import asyncio
import json as json_
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from hookline.engine.record import Record
from hookline.errors import UsageError
from hookline.journal.encoding import Encoding, decoded
from hookline.journal.masking import Mask
from hookline.journal.owner import owner
from hookline.journal.stream import Sender
from hookline.pyagent.load import load
from hookline.pyagent.run import (
    hooks_of,
    interruptible,
    recover_others,
    sound,
    sources_of,
    take,
    watcher,
    with_hooks,
)
from hookline.runners.places import place_of, usable
from hookline.terminal import err, open_journal, print_json, secrets_of

__all__ = ["HOST", "IDLE", "MODEL", "TOOLS", "URL", "serve_agent"]

PORT = 8080
HOST = Annotated[str, typer.Option("--host", help="the address to listen on, for an agent [127.0.0.1]")]
URL = Annotated[str, typer.Option("--url", help="what others call this server, for its card")]
MODEL = Annotated[str, typer.Option("--model", help="another model: provider/name, or scripted/FILE")]
TOOLS = Annotated[
    list[str] | None, typer.Option("--tools", help="a ready tool besides those of a manifest, such as bash")
]
IDLE = Annotated[
    float | None,
    typer.Option("--session-idle", help="seconds after which a session that nobody uses is over [1800]"),
]


def serve_agent(
    file: str,
    *,
    hooks: list[str] | None,
    port: int | None,
    host: str,
    url: str,
    model: str,
    image: list[str] | None,
    tools: list[str] | None,
    session_idle: float | None,
    strict: bool,
    json: bool,
    quiet: bool,
) -> int:
    """An agent in Python or a kagent manifest, behind A2A."""
    if strict:
        raise UsageError("--strict: this is for a WORKFLOW.md, and the file is an agent")
    if session_idle is not None and session_idle <= 0:
        raise UsageError(f"--session-idle is {session_idle:g}; a session lasts longer than that")
    if find_spec("a2a") is None:
        raise UsageError("serving an agent needs the a2a-sdk: pip install 'hookline[a2a]'")
    loaded = load(file)
    take(loaded, model, tools or [])
    sound(loaded, quiet=quiet, model=not model)
    loaded.agent.live_model()
    place, images = place_of("", image, network=False, mounts=None)
    sources = sources_of(loaded, images)
    runner = place.runner(workspace=Path.cwd(), files=hooks or ())
    more = hooks_of(hooks, runner)
    secrets = loaded.manifest.secrets if loaded.manifest else ()
    mask = Mask([*secrets_of(os.environ), *secrets])
    shown, sender = watcher(mask, json=json, quiet=quiet), _sender(mask)
    watchers = [*([shown] if shown else []), *([_recording(sender, mask)] if sender else [])]
    since = time.time()

    def watch(record: Record) -> None:
        for each in watchers:
            each(record)

    with open_journal(secrets) as journal:
        run: dict[str, Any] = {
            "hooks": more,
            "journal": journal,
            "watch": watchers,
            "workspace": Path.cwd(),
            "source": loaded.source,
            "owner": owner(),
        }

        async def main() -> int:
            from hookline.agent import a2a

            await recover_others(journal, watch if watchers else None, quiet=quiet or json)
            if sender is not None:
                from hookline.kagent.records import SERVING

                sender.say(SERVING, {"since": since})
            try:
                await usable(runner)
                async with (
                    with_hooks(loaded, runner, sources, quiet=quiet),
                    a2a.serving(
                        loaded.agent,
                        host=host or "127.0.0.1",
                        port=PORT if port is None else port,
                        url=url,
                        idle=session_idle or a2a.IDLE,
                        run=run,
                        mask=mask.text,
                    ) as (address, bound),
                ):
                    _tell(loaded.agent.id, address, bound, json=json)
                    await asyncio.Event().wait()
            finally:
                await runner.close()
            return 0

        return interruptible(main)


def _sender(mask: Mask) -> Sender | None:
    """For a pod whose operator reads the log: the same stream as all else, whose lines it cannot come between."""
    return Sender(_printed, mask) if os.environ.get("HOOKLINE_RECORDS") == "1" else None


def _recording(sender: Sender, mask: Mask) -> Callable[[Record], None]:
    """Sends what the journal here keeps, and no more."""
    if os.environ.get("HOOKLINE_PAYLOADS", "on") != "off":
        return sender.record
    bare = Encoding(mask, payloads=False)
    return lambda record: sender.record(decoded(record.run_id, json_.loads(bare.record(record))))


def _printed(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _tell(agent: str, address: str, port: int, *, json: bool) -> None:
    if json:
        print_json({"record": "serving", "agent": agent, "url": address, "port": port})
    else:
        err.print(f"{agent} answers over A2A on port {port}: {address}")
