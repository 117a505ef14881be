"""The calls that go through one hookline.yaml in three systems, and how what came of them is put into words."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("hookline.yaml")


class Case(NamedTuple):
    """One call. `differs` is why the command protocol cannot say the same, and what it says instead."""

    name: str
    tool: str
    input: dict[str, Any]
    output: str = "done"
    differs: str | None = None


def shell(command: str, **more: Any) -> Case:
    return Case(f"`{command}`", "bash", {"command": command}, **more)


def write(path: str) -> Case:
    return Case(f"write `{path}`", "write_file", {"path": path, "content": "x"})


CASES = (
    shell("ls -la"),
    shell("git push --force"),
    shell("git push origin main"),
    write("notes.txt"),
    write("/etc/passwd"),
    shell("echo x > /var/outside.txt"),
    shell("cat .env", output="API_KEY=sk-1234567890abcdef1234567890abcdef"),
    shell("pytest"),
    shell("kubectl delete pod web"),
    shell("curl http://example.com"),
    shell("git commit -m x"),
    shell("mkfs /dev/sda"),
    shell("make test"),
    shell("date"),
    shell("uptime"),
    shell("id"),
    shell(
        "whoami",
        differs="the protocol takes no answer in a tool's place, so the call is refused with the answer as the reason",
    ),
)


def worded(
    case: Case,
    *,
    refused: str | None = None,
    asked: str | None = None,
    stopped: str | None = None,
    answered: str | None = None,
    ran: dict[str, Any] | None = None,
    read: str | None = None,
    told: str | None = None,
) -> str:
    """What was decided, the same words for the same thing."""
    if stopped is not None:
        return f"the run stops: {_tidy(stopped)}"
    if refused is not None:
        return f"refused: {_tidy(refused)}"
    if asked is not None:
        return f"asks a person: {_tidy(asked)}"
    if answered is not None:
        return f"answered: {_tidy(answered)}"
    words = "runs"
    if ran is not None and ran != case.input:
        words += f" as `{ran.get('command') or json.dumps(ran)}`"
    if read is not None and read != case.output:
        words += f", and the model reads `{_tidy(read)}`"
    if told:
        words += f", and the model is told: {_tidy(told)}"
    return words


def _tidy(text: str) -> str:
    """One line without the place on this machine where it happened."""
    flat = " ".join(text.split()).replace(str(FILE), FILE.name)
    flat = re.sub(r" \((/[^ ()]*:\d+)\)", "", flat)
    return re.sub(r"/[^ `'\"]*/work(?=[/ `'\",.;]|$)", "WORKSPACE", flat)
