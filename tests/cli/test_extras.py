"""Packages of extras that are not installed: one sentence with the command that installs them, from every command."""

import pytest

BLOCK = "import sys\nfor name in {!r}.split():\n    sys.modules[name] = None\n"
AGENT = "from hookline import Agent, McpServer, Scripted\nagent = Agent(id='a', {})\n"
WORKFLOW = """---
tracker: {{kind: {tracker}}}
agent: {{kind: command, command: "true"}}
{more}
---
do it
"""
FOLDER = WORKFLOW.format(tracker="folder, provider: {path: issues}", more="")
LINEAR = WORKFLOW.format(tracker="linear, provider: {project_slug: x}", more="")
PORT = WORKFLOW.format(tracker="folder, provider: {path: issues}", more="server: {port: 0}")
FILES = {
    "openai.py": AGENT.format("provider='openai', model='x'"),
    "anthropic.py": AGENT.format("provider='anthropic', model='x'"),
    "tools.py": AGENT.format("model=Scripted(['x']), tools=[McpServer(name='s', command='true')]"),
    "FOLDER.md": FOLDER,
    "LINEAR.md": LINEAR,
    "PORT.md": PORT,
    "run.yaml": "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\nspec: {task: x}\n",
}
MISSING = [
    ("openai", "openai", "run openai.py x"),
    ("openai", "openai", "serve openai.py"),
    ("anthropic", "anthropic", "run anthropic.py x"),
    ("mcp", "mcp", "run tools.py x"),
    ("mcp", "mcp", "check tools.py"),
    ("mcp", "mcp", "serve tools.py"),
    ("openai", "openai", "check openai.py"),
    ("a2a", "a2a", "serve tools.py"),
    ("a2a", "uvicorn", "serve tools.py"),
    ("orchestrator", "liquid", "run FOLDER.md --issue 1"),
    ("orchestrator", "liquid", "serve FOLDER.md"),
    ("orchestrator", "liquid", "check FOLDER.md"),
    ("orchestrator", "httpx2", "serve LINEAR.md"),
    ("orchestrator", "httpx2", "run LINEAR.md --issue 1"),
    ("orchestrator", "starlette", "serve PORT.md"),
    ("a2a", "starlette", "serve tools.py"),
    ("orchestrator", "uvicorn", "serve PORT.md"),
    ("kube", "lightkube", "run run.yaml --on kubernetes"),
    ("kube", "lightkube", "runs --on kubernetes"),
    ("kube", "httpx2", "operator"),
]


@pytest.mark.parametrize(("extra", "module", "command"), MISSING)
def test_a_missing_extra_is_one_sentence_that_helps(hookline, tmp_path, extra, module, command):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "1.md").write_text("---\nstate: todo\n---\n# x\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCK.format(module))
    hookline.environ |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LINEAR_API_KEY"), "x")
    hookline.environ["PYTHONPATH"] = str(tmp_path / "site")
    done = hookline(*command.split())
    told = done.stdout if command.startswith("check") else done.stderr
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert told.count(f"pip install 'hookline[{extra}]'") == 1, done
