"""A coding agent that needs no model: does the first open item of its issue's checklist, then ticks it off.

It is given what every command-line agent is: the prompt on standard input, and the workspace as its folder.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ITEM = re.compile(r"^- \[ \] `(.+)`$", re.MULTILINE)
PLACE = re.compile(r"The issue itself is in (.+\.md):")


def main() -> int:
    file = Path(PLACE.findall(sys.stdin.read())[0])
    with Path("../../story.txt").open("a") as story:
        story.write(f"{file.stem} agent\n")
    issue = file.read_text()
    item = ITEM.search(issue)
    if item is None:
        print("nothing is left to do")
        return 0
    done = subprocess.run(["sh", "-c", item[1]], check=False)
    if done.returncode:
        return done.returncode
    ticked = item[0].replace("[ ]", "[x]", 1)
    written(file, issue[: item.start()] + ticked + issue[item.end() :])
    print(f"done: {item[1]}")
    return 0


def written(file: Path, text: str) -> None:
    """Whole or not at all, for the service may be reading it."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text)
    os.replace(part, file)


if __name__ == "__main__":
    sys.exit(main())
