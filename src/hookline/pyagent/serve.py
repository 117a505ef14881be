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
from typing import Any

from hookline.agent.loaded import image_sources
from hookline.engine.record import Record
from hookline.errors import UsageError
from hookline.hookfile.attach import hooks_of
from hookline.journal.encoding import Encoding, decoded
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.journal.stream import SERVING, Sender
from hookline.journal.user import open_journal
from hookline.options import ServeOptions
from hookline.pyagent.run import Loader, progress, recover_others, refuse_unsound, take
from hookline.runners.places import place_of, usable
from hookline.secret_names import secrets_in
from hookline.terminal import err, interruptible, print_json, watcher

PORT = 8080


def serve_agent(options: ServeOptions, load: Loader) -> int:
    """Serve an agent of any format behind A2A."""
    idle = options.session_idle
    if idle is not None and idle <= 0:
        raise UsageError(f"--session-idle is {idle:g}; a session lasts longer than that")
    if find_spec("a2a") is None:
        raise UsageError("serving an agent needs the a2a-sdk: pip install 'hookline[a2a]'")
    loaded = load(options.file)
    quiet, json = options.quiet, options.json
    take(loaded, options.model, options.tools)
    refuse_unsound(loaded, quiet=quiet, model=not options.model)
    loaded.agent.live_model()
    place, images = place_of("", options.image, network=False, mounts=None)
    sources = image_sources(loaded, images)
    runner = place.runner(workspace=Path.cwd(), files=options.hooks)
    more = hooks_of(options.hooks, runner)
    secrets = loaded.secrets
    mask = Mask([*secrets_in(os.environ), *secrets])
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

            await recover_others(journal, watch if watchers else None, load, quiet=quiet or json)
            if sender is not None:
                sender.say(SERVING, {"since": since})
            try:
                await usable(runner)
                async with (
                    loaded.live(runner, sources, progress(quiet=quiet)),
                    a2a.serving(
                        loaded.agent,
                        host=options.host or "127.0.0.1",
                        port=PORT if options.port is None else options.port,
                        url=options.url,
                        idle=idle or a2a.IDLE,
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
