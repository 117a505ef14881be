"""The entry point of `hookline` and of `python -m hookline`.

`answer` runs around every tool call, so it loads only its own modules.
"""

from __future__ import annotations

import gc
import os
import sys

_LINGER = 2.0
"""Seconds that threads which are no daemons have once a command is done."""
_ENDS = ("Stop", "SubagentStop", "SessionEnd", "Post", "After")
"""How the names of events begin at which nothing is about to happen."""


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["answer"]:
        # The garbage of one answer goes with the process; collecting it would take longer than the answer.
        gc.disable()
        _answer(words[1:])
    from hookline.cli import app

    code = app.main(words)
    # At its end the interpreter looks for cycles in all that was imported, for longer than some commands take.
    gc.freeze()
    _end_threads(code)
    sys.exit(code)


def _end_threads(code: int) -> None:
    """End the process in a moment, if what a hook or a tool has started would keep it alive."""
    threading = sys.modules.get("threading")
    if threading is None or not (
        others := [each.name for each in threading.enumerate() if not each.daemon][1:]
    ):
        return

    def end() -> None:
        try:
            print(f"hookline: ended with threads still running: {', '.join(others)}", file=sys.stderr)
            sys.stdout.flush()
        finally:
            os._exit(code)

    timer = threading.Timer(_LINGER, end)
    timer.daemon = True
    timer.start()


def _answer(words: list[str]) -> None:
    """Answer and end the process: with a refusal where not even that can be done, for want of memory or of a module."""
    try:
        from hookline import answer

        code = answer.main(words)
    except SystemExit:
        raise
    except BaseException as exc:
        code = 1 if any(word.startswith(_ENDS) for word in words[:1]) else 2
        try:
            os.write(
                2, f"hookline could not be asked: {type(exc).__name__}: {exc}\n".encode("utf-8", "replace")
            )
        except BaseException:
            pass
    # The interpreter would end with another code where what is left for standard error cannot be written.
    os._exit(code)


if __name__ == "__main__":
    main()
