"""The entry point of `hookline` and of `python -m hookline`.

`answer` runs around every tool call, so it loads only its own modules.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["answer"]:
        # The garbage of one answer goes with the process; collecting it would take longer than the answer.
        gc.disable()
        from hookline import answer

        sys.exit(answer.main(words[1:]))
    from hookline.cli import app

    code = app.main(words)
    # At its end the interpreter looks for cycles in all that was imported, for longer than some commands take.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
