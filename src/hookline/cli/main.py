"""The command `hookline`: which half of it a call needs. `answer` runs around every tool call and loads no more."""

from __future__ import annotations

import gc
import sys


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["answer"]:
        # What one answer leaves behind is soon gone with the process; to look for it takes longer than the answer.
        gc.disable()
        from hookline.answer.quick import let_go

        stdin = let_go(words[1:])
        gc.enable()
        from hookline.answer.full import answering

        sys.exit(answering(words[1:], stdin))
    from hookline.cli import app

    code = app.main(words)
    # At its end the interpreter looks for cycles in all that was imported, for longer than some commands take.
    gc.freeze()
    sys.exit(code)
