"""`hookline explain` of an agent: its hooks by point, with limits, sources, and what should be known of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hookline.agent.loaded import Loaded
from hookline.engine.hook import Hook, Mode, settled_on_error
from hookline.engine.point import Point
from hookline.hookfile.attach import hooks_of
from hookline.journal.masking import Mask
from hookline.options import ExplainOptions
from hookline.pyagent.run import AGENT_HERE, refuse_unsound
from hookline.runners.local import LocalRunner
from hookline.runners.places import Place, known_place, runs_in
from hookline.secret_names import secrets_in
from hookline.terminal import Explained, ExplainedHook


def explain_agent(loaded: Loaded, options: ExplainOptions) -> Explained:
    refuse_unsound(loaded, model=False)
    place = Place(on=known_place(options.on or "local"))
    runner = LocalRunner()
    image_notes = loaded.attach_unfetched(runner, here=place.is_here)
    hooks = [*hooks_of(options.hooks, runner), *loaded.agent.hooks()]
    rows = list(hook_rows(hooks, place.on))
    notes = [
        *place.told(AGENT_HERE, workspace=Path.cwd(), files=options.hooks),
        *image_notes,
        *_notes(loaded, hooks),
    ]
    agent = loaded.declaration.agent
    assert agent is not None
    tools = ", ".join(agent.tools) or "no tools"
    return Explained(
        head=[
            f"{loaded.source} ({loaded.declaration.format})",
            f"agent {agent.name}, {agent.provider or '?'}/{agent.model or '?'}, {tools}",
        ],
        hooks=[
            ExplainedHook(
                str(row["point"]),
                f"{row['order']}. {_sentence(row, placed=bool(options.on))}",
                str(row["source"]),
            )
            for row in rows
        ],
        notes=notes,
        value={
            "declaration": loaded.declaration.to_dict(),
            "on": place.on,
            "hooks": rows,
            "notes": notes,
        },
    )


def hook_rows(hooks: Sequence[Hook], on: str) -> Iterable[dict[str, Any]]:
    """Each hook at each of its points, in the order in which they run."""
    for point in Point:
        standing = [hook for hook in hooks if point in hook.points]
        for order, hook in enumerate(standing, 1):
            yield {
                "point": point,
                "order": order,
                "name": hook.name,
                "kind": hook.kind,
                "runs": runs_in(hook.kind, on),
                "match": hook.match_text,
                "timeout": hook.timeout,
                "on_error": settled_on_error(hook, point),
                "mode": hook.mode,
                "source": hook.source,
            }


def _sentence(row: dict[str, Any], *, placed: bool) -> str:
    limit = f"limit {row['timeout']:g} s" if row["timeout"] is not None else "no limit"
    match = f", for {row['match']}" if row["match"] else ""
    mode = "" if row["mode"] == Mode.ENFORCE else f", {row['mode']} only: its verdict does not count"
    mode = ", off" if row["mode"] == Mode.OFF else mode
    where = f" runs {row['runs']}" if placed else ""
    return f"{row['name']} ({row['kind']}){where}{match}, {limit}, if it breaks: {row['on_error']}{mode}"


def _notes(loaded: Loaded, hooks: Sequence[Hook]) -> list[str]:
    held = [
        hook.name
        for hook in hooks
        if hook.mode is Mode.ENFORCE and hook.points & {Point.MODEL_END, Point.STEP_END, Point.AGENT_END}
    ]
    mask = Mask(secrets_in(os.environ))
    notes = [
        f"{server}: its tools are listed when a run begins; {mask.text(server.place)}"
        for server in loaded.agent.servers
    ]
    if not held:
        return notes
    names = ", ".join(dict.fromkeys(held))
    return [*notes, f"Streamed text is held back, because it may still be changed or refused by: {names}"]
