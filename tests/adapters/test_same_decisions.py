"""One hookline.yaml, three systems: ADK, the built-in agent, the command protocol. The table in the docs is from here.

HOOKLINE_WRITE_PAGES=1 writes the page instead of comparing it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, tool
from hookline.agent.models.script import Scripted
from hookline.engine.record import Called, Question, Verdict, VerdictKind
from hookline.errors import HookFailed
from hookline.hookfile.attach import load_hooks
from hookline.journal.sqlite import MemoryJournal
from hookline.runners.local import LocalRunner
from tests.adapters.environment import ADK, ROOT, adk_python, in_adk
from tests.adapters.same.cases import CASES, FILE, Case, worded

PAGE = ROOT / "docs" / "reference" / "same-decisions.md"
CLAUDE = {"bash": "Bash", "write_file": "Write"}
HEAD = f"""\
# The same decisions everywhere

One `hookline.yaml` around one tool call, in three systems: an agent of google-adk {ADK} with `HooklinePlugin`, the
built-in agent, and `hookline answer` as the hook of a foreign agent (here in the words of Claude Code). A test runs
every call through all three and makes this page; do not edit it. The file is at the end.

| the call | google-adk | built-in agent | `hookline answer` |
|---|---|---|---|
"""


async def built_in(case: Case, workspace: Path) -> str:
    ran: list[dict[str, Any]] = []
    asked: list[str] = []

    @tool(id="bash", kind="shell")
    def bash(command: str) -> dict[str, str]:
        ran.append({"command": command})
        return {"stdout": case.output}

    @tool(id="write_file", kind="write")
    def write_file(path: str, content: str) -> dict[str, str]:
        ran.append({"path": path, "content": content})
        return {"stdout": case.output}

    async def approver(question: Question) -> Verdict:
        asked.append("; ".join(reason.text for reason in question.reasons))
        return Verdict(VerdictKind.APPROVE)

    model = Scripted([{"tools": [{"name": case.tool, "arguments": case.input}]}, "done"])
    agent = Agent(id="a", model=model, tools=[bash, write_file])
    runner = LocalRunner()
    journal = MemoryJournal()
    try:
        hooks = load_hooks(str(FILE), runner).hooks
        result = await agent.run("go", hooks=hooks, approver=approver, workspace=workspace, journal=journal)
    except HookFailed as exc:
        return worded(case, stopped=exc.reason)
    finally:
        await runner.close()
        await agent.close()
    made = result.tool_results[0]
    if asked:
        return worded(case, asked=asked[0])
    if made.status == "blocked":
        return worded(case, refused=str(made.error).removeprefix("refused: "))
    if made.status == "answered":
        return worded(case, answered=made.result["stdout"])
    calls = [each for each in journal.records(result.agent_run_id) if isinstance(each, Called)]
    told = "; ".join(each.tell_model for each in calls if each.tell_model)
    return worded(case, ran=ran[0], read=made.result["stdout"], told=told)


def by_command(case: Case, workspace: Path, home: Path) -> str:
    """What a foreign agent would do on hookline's answers before and, if the tool ran, after the call."""
    given = dict(case.input)
    if "path" in given:
        given["file_path"] = given.pop("path")
    event: dict[str, Any] = {
        "session_id": "s",
        "cwd": str(workspace),
        "tool_name": CLAUDE[case.tool],
        "tool_use_id": "c1",
        "tool_input": given,
    }
    before = said({**event, "hook_event_name": "PreToolUse"}, home)
    specific = before.get("hookSpecificOutput", {})
    decision, reason = specific.get("permissionDecision"), specific.get("permissionDecisionReason", "")
    if before.get("continue") is False:
        return worded(case, stopped=before["stopReason"])
    if decision == "deny":
        return worded(case, refused=reason)
    if decision == "ask":
        return worded(case, asked=reason)
    used = specific.get("updatedInput", given)
    response = {"stdout": case.output}
    after = said(
        {**event, "hook_event_name": "PostToolUse", "tool_input": used, "tool_response": response}, home
    )
    changed = after.get("hookSpecificOutput", {}).get("updatedToolOutput", response)
    if "file_path" in used:
        used = {("path" if key == "file_path" else key): value for key, value in used.items()}
    return worded(case, ran=used, read=changed["stdout"], told=specific.get("additionalContext"))


def said(event: dict[str, Any], home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "answer", "--file", str(FILE)],
        input=json.dumps(event),
        env={**os.environ, "HOOKLINE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else {}


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.statement("KA5")
async def test_one_file_gives_the_same_decisions_in_adk_in_the_built_in_agent_and_by_command(tmp_path):
    workspace = tmp_path / "work"
    workspace.mkdir()
    done = in_adk(adk_python(), "-m", "tests.adapters.same.in_adk", str(workspace))
    assert done.returncode == 0, done.stdout + done.stderr
    adk = json.loads(done.stdout)
    rows: list[tuple[Case, str, str, str]] = []
    for case in CASES:
        here = await built_in(case, workspace)
        rows.append((case, adk[case.name], here, by_command(case, workspace, tmp_path / "home")))
    for case, one, two, three in rows:
        assert one == two, case.name
        assert (three == two) == (case.differs is None), (case.name, two, three)
    text = page(rows)
    if os.environ.get("HOOKLINE_WRITE_PAGES") == "1":
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "stale; write it again with HOOKLINE_WRITE_PAGES=1"


def page(rows: list[tuple[Case, str, str, str]]) -> str:
    lines = [
        f"| {case.name} | {one} | the same | {'the same' if three == one else f'{three} (1)'} |"
        for case, one, _, three in rows
    ]
    notes = [f"(1) {case.differs}." for case, *_ in rows if case.differs]
    file = FILE.read_text(encoding="utf-8")
    return HEAD + "\n".join(lines) + "\n\n" + "\n".join(notes) + f"\n\n```yaml\n{file}```\n"
