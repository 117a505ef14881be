"""The main job in one go, offline: a run with hooks at every level, its record, and a run that is refused.

Each command is shown as you would type it.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
AGENT = f"{os.path.relpath(HERE / 'polos' / 'release.py')}:assistant"
CODER = os.path.relpath(HERE / "guards" / "coder.py")
GUARDS = os.path.relpath(HERE / "guards" / "hookline.yaml")
KAGENT = os.path.relpath(HERE / "kagent")
BOARD = os.path.relpath(HERE / "symphony")
INCIDENT = os.path.relpath(HERE / "sympozium")
LIMIT = 120.0  # for a board that is never worked off
HOOKLINE = [sys.executable, "-m", "hookline"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hookline-demo-") as home:
        env = {**os.environ, "HOOKLINE_HOME": home, "COLUMNS": os.environ.get("COLUMNS", "100")}
        heading("A release assistant, with hooks around its work, steps, model and tool calls")
        first = approved_run(env, "Release 1.4 and tell ana@example.com")
        heading("The same run, from the journal")
        second = shown(env, "runs", "last")
        heading("A hook fails a run: the model is never asked")
        third = shown(env, "run", AGENT, "Release 1.5 on Friday")
        heading("What a guard would say, with no agent at all")
        command = '{"command": "git push -f origin main"}'
        fourth = shown(env, "try", "tool.start", AGENT, "--tool", "bash", "--input", command)
        heading("One file of hooks, commands among them, around another agent")
        fifth = shown(env, "run", CODER, "tidy up", "--hooks", GUARDS)
        heading("The same file, when Claude Code asks")
        sixth = asked(env, "git push --force origin main")
        heading("A kagent manifest as it is: its hooks out of an image, its tools from an MCP server")
        seventh = shown(env, "run", f"{KAGENT}/agent.yaml", "tidy up", *in_place_of_a_cluster())
        heading("A board of issues: a workspace for each, with its hooks, and an agent that works in it")
        eighth = worked_off({**env, "HOOKLINE_HOME": f"{home}/board-home"}, Path(home, "board"))
        heading("An AgentRun: containers before and after the agent; here as plain processes")
        command = f"sh {shlex.quote(str(HERE / 'sympozium' / 'agent.sh'))}"
        ninth = shown(env, "run", f"{INCIDENT}/incident.yaml", "--on", "local", "--agent-command", command)
    codes = (first, second, third, fourth, fifth, sixth, seventh, eighth, ninth)
    expected = (0, 0, 1, 1, 0, 0, 0, 0, 0)
    if codes != expected:
        print(f"\nthe demo went wrong: exit codes {codes}, expected {expected}")
        return 1
    print("\nThat is all. The hooks are in examples/; README.md says where to read on.")
    return 0


def approved_run(env: dict[str, str], question: str) -> int:
    """Runs the agent; when a hook asks for a person, the answer is what one would type."""
    arguments = ["run", AGENT, question, "--ask", "terminal"]
    print(f"$ echo a | hookline {shlex.join(arguments)}", flush=True)
    return subprocess.run([*HOOKLINE, *arguments], env=env, input=b"a\n", check=False).returncode


def asked(env: dict[str, str], command: str) -> int:
    """What Claude Code would write to its hook before a call, and what it reads back."""
    event = {
        "session_id": "demo",
        "transcript_path": "",
        "cwd": os.getcwd(),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": "toolu_1",
    }
    arguments = ["answer", "PreToolUse", "--file", GUARDS]
    print(f"$ echo '{json.dumps(event)}' | hookline {shlex.join(arguments)}", flush=True)
    return subprocess.run(
        [*HOOKLINE, *arguments], env=env, input=json.dumps(event).encode(), check=False
    ).returncode


def in_place_of_a_cluster() -> list[str]:
    """Offline there is no registry and no model: a folder and a script stand in for them."""
    image = f"ghcr.io/org/security-hooks:v1.0={KAGENT}/security-hooks"
    return ["--image", image, "--model", f"scripted/{KAGENT}/scripts/tidy.yaml"]


def worked_off(env: dict[str, str], board: Path) -> int:
    """Serves a copy of the board until every issue is done, ends the service as Ctrl-C would, and tells the story."""
    shutil.copytree(BOARD, board)
    print(f"$ cp -R {BOARD} board; cd board")
    arguments = ["serve", "WORKFLOW.md", "--quiet"]
    typed(arguments)
    names = sorted(file.stem for file in (board / "issues").glob("*.md"))
    deadline = time.monotonic() + LIMIT
    with subprocess.Popen([*HOOKLINE, *arguments], cwd=board, env=env) as service:
        while service.poll() is None and time.monotonic() < deadline:
            if all((board / "done" / name).exists() for name in names):
                break
            time.sleep(0.1)
        service.send_signal(signal.SIGINT)
    print("$ sort -s -k1,1 story.txt")
    lines = (board / "story.txt").read_text().splitlines()
    print("\n".join(sorted(lines, key=lambda line: line.split()[0])), flush=True)
    return service.returncode


def shown(env: dict[str, str], *arguments: str) -> int:
    typed(arguments)
    return subprocess.run([*HOOKLINE, *arguments], env=env, check=False).returncode


def typed(arguments: list[str] | tuple[str, ...]) -> None:
    print(f"$ hookline {shlex.join(arguments)}", flush=True)


def heading(text: str) -> None:
    print(f"\n== {text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
