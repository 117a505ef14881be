"""The entry point of `hookline`. `answer` runs around every tool call, so it loads only its own modules."""

from __future__ import annotations

import gc
import sys


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["answer"]:
        # The garbage of one answer goes with the process; collecting it would take longer than the answer.
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
