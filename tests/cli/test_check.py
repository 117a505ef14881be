import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hookline.claude.clients import CLIENTS, Place
from hookline.errors import FileError
from tests.command import approve
from tests.conformance import polos_seed_blocks as polos


def test_explain_says_which_hooks_run_where_in_which_order(hookline):
    shown = hookline("explain", "agent.py").stdout
    order = [line for line in shown.splitlines() if line.startswith("  ") and ". " in line[:6]]
    assert [line.split()[1] for line in order] == ["log", "stop_if_bad", "log", "no_rm"]
    assert "no_rm (python), for bash, limit 60 s, if it breaks: fail" in shown
    assert "agent.py:8" in shown
    assert "Streamed text is held back" in shown


def test_explain_as_json_has_the_whole_declaration(hookline):
    found = json.loads(hookline("explain", "agent.py", "--json").stdout)
    assert found["declaration"]["agent"]["tools"] == ["bash"]
    assert [(row["point"], row["name"]) for row in found["hooks"]] == [
        ("agent.start", "log"),
        ("agent.start", "stop_if_bad"),
        ("agent.end", "log"),
        ("tool.start", "no_rm"),
    ]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("rm -rf /", 1, "= block: nothing is deleted"), ("ls", 0, "= goes on unchanged")],
)
def test_try_says_what_the_hooks_would_decide(hookline, command, code, said):
    done = hookline(
        "try", "tool.start", "agent.py", "--tool", "bash", "--input", json.dumps({"command": command})
    )
    assert done.returncode == code
    assert said in done.stdout


def test_try_takes_plain_text_as_an_agents_input(hookline):
    assert hookline("try", "agent.start", "agent.py", "--input", "bad").returncode == 1
    assert hookline("try", "agent.start", "agent.py", "--input", "fine").returncode == 0


def test_try_from_a_past_run_replays_its_events(hookline):
    hookline("run", "agent.py", "x")
    text = (hookline.folder / "agent.py").read_text()
    (hookline.folder / "agent.py").write_text(text.replace('"rm "', '"nothing of the kind"'))
    done = hookline("try", "tool.start", "agent.py", "--from", "last")
    assert done.returncode == 0
    assert "tool.start bash" in done.stdout
    assert "goes on unchanged" in done.stdout
    everything = hookline("try", "all", "agent.py", "--from", "last", "--json")
    points = [json.loads(line)["point"] for line in everything.stdout.splitlines()]
    assert points[:3] == ["run.start", "session.start", "agent.start"]
    assert points[-1] == "run.end"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tool.strat", "agent.py"], "unknown point 'tool.strat'; did you mean tool.start?"),
        (["tool.start", "agent.py"], "--tool is missing; tools of guarded: bash"),
        (["tool.start", "agent.py", "--tool", "bash", "--input", "{no"], "this is not JSON"),
        (["all", "agent.py"], "`all` needs --from RUN"),
        (["tool.end", "agent.py", "--tool", "bash", "--status", "fine"], "--status is 'fine'; known: ok"),
        (["tool.start", "agent.py", "--from", "zzz"], "there is no run 'zzz'"),
    ],
)
def test_a_wrong_try_is_told(hookline, words, said):
    done = hookline("try", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_check_finds_nothing_wrong_with_a_good_file(hookline):
    done = hookline("check", "agent.py")
    assert (done.returncode, done.stdout) == (0, "agent.py: no problems\n")


def test_check_lists_every_mistake_with_its_place(hookline):
    (hookline.folder / "off.py").write_text(
        "from hookline import Agent, HookResult, hook\n"
        "@hook(match='bsh')\ndef guard(a, b): ...\n"
        "@hook(observe=True)\ndef watcher(a, b): ...\n"
        "agent = Agent(id='a', provider='opnai', model='x', tools=['bash'], on_tool_start=[guard, watcher])\n"
    )
    done = hookline("check", "off.py", "missing.py", "agent.py")
    assert done.returncode == 2
    assert "off.py:2: hook guard: match 'bsh' fits no tool of a; its tools: bash" in done.stdout
    assert "off.py:4: hook watcher: its mode is observe, so it refuses nothing" in done.stdout
    assert "openai" in done.stdout
    assert "missing.py: there is no such file" in done.stdout
    assert "3 problems, 1 warning" in done.stdout
    assert len(json.loads(hookline("check", "off.py", "--json").stdout)["problems"]) == 3


@pytest.mark.parametrize(("script", "code"), [("guard.py", 0), ("gone.py", 2)])
def test_check_looks_for_a_command_in_the_project_that_claude_code_fills_in(hookline, script, code):
    (hookline.folder / "guard.py").write_text("print()\n")
    entry = {"type": "command", "command": sys.executable, "args": [f"${{CLAUDE_PROJECT_DIR}}/{script}"]}
    settings = hookline.folder / "settings.json"
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [entry]}]}}))
    done = hookline("check", "settings.json")
    assert (done.returncode, "it could not start" in done.stdout) == (code, code == 2), done.stdout


PYTHON = """
from hookline import Agent, HookContext, HookResult, Scripted, WorkflowContext, hook
{}
agent = Agent(id="a", model={}, tools=["bash"], on_tool_start=[{}])
"""
SETTINGS = '{{"hooks": {{"PreToolUse": [{{"hooks": [{{"type": "command", "command": "{}"}}]}}]}}}}'
YAML = "hooks:\n  - name: g\n    on: tool.start\n    {}\n"
FLOW = """---
tracker: {{kind: folder, provider: {{path: issues{}}}}}
agent: {{kind: command, command: "true"}}
{}
---
do it
"""
# The file, its content, and the level, code, line and key of its one problem.
PROBLEMS = {
    "a typo in a key": (
        "hookline.yaml",
        YAML.format("mtch: bash\n    shell: 'true'"),
        ("mistake", "unknown-key", 4, "hooks[0].mtch"),
    ),
    "a misspelt hookline": (
        "settings.json",
        SETTINGS.format("hooklin answer PreToolUse"),
        ("mistake", "missing-program", 1, None),
    ),
    "a misspelt script": (
        "hookline.yaml",
        YAML.format("shell: pytset -q"),
        ("mistake", "missing-program", 2, None),
    ),
    "a command without its program": (
        "hookline.yaml",
        YAML.format("command: [nothing-there]"),
        ("mistake", "missing-program", 2, None),
    ),
    "a builtin": ("hookline.yaml", YAML.format("shell: cd / && exit 0"), None),
    "a plain builtin": ("settings.json", SETTINGS.format("exit 0"), None),
    "a program with a variable before it": ("hookline.yaml", YAML.format("shell: A=1 sh -c true"), None),
    "a script that sh does not read": (
        "hookline.yaml",
        YAML.format("shell: 'if true; then'"),
        ("warning", "shell-syntax", 2, None),
    ),
    "a hook that observes": (
        "hookline.yaml",
        YAML.format("mode: observe\n    shell: 'true'"),
        ("warning", "not-enforced", 2, None),
    ),
    "a hook that is off": (
        "hookline.yaml",
        YAML.format("mode: 'off'\n    shell: 'true'"),
        ("warning", "not-enforced", 2, None),
    ),
    "no key for the provider": (
        "a.py",
        PYTHON.format("", "'x', provider='openai'", ""),
        ("warning", "missing-api-key", None, None),
    ),
    "a hook of three parameters": (
        "hookline.yaml",
        YAML.format("python: 'mine.py:three'"),
        ("mistake", "wrong-function", 2, None),
    ),
    "a hook that is no function": (
        "hookline.yaml",
        YAML.format("python: 'mine.py:number'"),
        ("mistake", "invalid", 2, "python"),
    ),
    "a hook annotated to return None": (
        "hookline.yaml",
        YAML.format("python: 'mine.py:nothing'"),
        ("mistake", "wrong-function", 2, None),
    ),
    "a hook of an agent annotated to return a text": (
        "a.py",
        PYTHON.format("def g(ctx, hook_context) -> str: ...", "Scripted(['x'])", "g"),
        ("mistake", "wrong-function", 3, None),
    ),
    "parameters the other way round": (
        "a.py",
        PYTHON.format("def g(c: HookContext, d: WorkflowContext) -> HookResult: ...", "Scripted(['x'])", "g"),
        ("mistake", "wrong-function", 3, None),
    ),
    "a match that fits nothing": (
        "a.py",
        PYTHON.format("@hook(match='bsh')\ndef g(c, d): ...", "Scripted(['x'])", "g"),
        ("mistake", "no-match", 3, None),
    ),
    "several agents": (
        "a.py",
        PYTHON.format("", "Scripted(['x'])", "") + "other = agent\n",
        ("warning", "several-agents", None, None),
    ),
    "an unset variable": (
        "WORKFLOW.md",
        FLOW.format("", "").replace("issues", "$NOT_SET_HERE"),
        ("warning", "unset-variable", None, "tracker.provider"),
    ),
    "an unset variable for the folder": (
        "WORKFLOW.md",
        FLOW.format("", "workspace: {root: $NOT_SET_HERE}"),
        ("warning", "unset-variable", 4, "workspace.root"),
    ),
    "a key where it once stood": (
        "WORKFLOW.md",
        FLOW.format("", "").replace("folder, provider: {path: issues}", "linear, project_slug: x"),
        ("warning", "legacy-key", 2, "tracker.project_slug"),
    ),
    "a limit of a policy that is not enforced": (
        "policy.yaml",
        "apiVersion: sympozium.ai/v1alpha1\nkind: SympoziumPolicy\nmetadata: {name: p}\nspec:\n  networkPolicy: {denyAll: true}\n",
        ("warning", "note", 5, "spec.networkPolicy"),
    ),
    "a script of a workflow": (
        "WORKFLOW.md",
        FLOW.format("", "hooks: {before_run: 'if true; then'}"),
        ("warning", "shell-syntax", 4, None),
    ),
    "a key of a manifest that has no effect": (
        "an agent.yaml",
        "apiVersion: kagent.dev/v1alpha2\nkind: ModelConfig\nmetadata: {name: m}\n"
        "spec:\n  provider: Ollama\n  model: x\n  novelty: 1\n"
        "---\napiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: a}\n"
        "spec: {type: Declarative, declarative: {systemMessage: hi, modelConfig: m}}\n",
        ("warning", "unknown-key", 7, "spec.novelty"),
    ),
}
MINE = "def three(a, b, c): ...\nnumber = 3\ndef nothing(a, b) -> None: ...\n"


@pytest.mark.parametrize("name", PROBLEMS)
def test_check_tells_the_level_code_and_place_of_each_problem(hookline, tmp_path, name):
    file, text, wanted = PROBLEMS[name]
    (tmp_path / file).write_text(text)
    (tmp_path / "mine.py").write_text(MINE)
    hookline.environ.pop("OPENAI_API_KEY", None)
    hookline.environ["LINEAR_API_KEY"] = "x"
    if file == "hookline.yaml":
        hookline.environ["HOOKLINE_HOME"] = str(tmp_path / "home")
        with suppress(FileError):  # one with a mistake cannot be approved; of the others the code is loaded
            approve(tmp_path / file, hookline.environ)
    done = hookline("check", "--json", file)
    found = [each for each in json.loads(done.stdout)["problems"] if each["code"] != "not-approved"]
    got = [(each["level"], each["code"], each["line"], each["key"]) for each in found]
    assert got == ([] if wanted is None else [wanted]), found
    assert all(each["file"].endswith(file) or file == "a.py" for each in found)
    mistake = wanted is not None and wanted[0] == "mistake"
    assert done.returncode == (2 if mistake else 0)
    if wanted is not None:
        assert hookline("check", "--strict", file).returncode == 2


def test_check_warns_of_a_hook_file_that_is_not_approved(hookline, tmp_path):
    (tmp_path / "hookline.yaml").write_text(YAML.format("shell: 'true'"))
    done = hookline("check", "hookline.yaml")
    assert (done.returncode, "hookline.yaml: is not approved" in done.stdout) == (0, True), done.stdout
    assert done.stdout.endswith("hookline.yaml: no problems, 1 warning\n")


@pytest.mark.parametrize("shell", ["sh", "bash", "/bin/bash"])
def test_a_script_is_read_by_its_own_shell_which_a_message_names(hookline, tmp_path, shell):
    file = tmp_path / "hookline.yaml"

    def said(script):
        key = (
            f"shell: {json.dumps(script)}"
            if shell == "sh"
            else f"command: {json.dumps([shell, '-c', script])}"
        )
        file.write_text(YAML.format(key))
        found = json.loads(hookline("check", "--json", "hookline.yaml").stdout)["problems"]
        return [each["message"] for each in found if each["code"] == "shell-syntax"]

    [message] = said("if true; then")
    assert message.startswith(f"hook g: {shell} -n: ")
    # Bash has arrays; what `sh` is differs from system to system, and it is asked itself.
    is_read = subprocess.run([shell, "-n"], input="a=(1 2)\n", text=True, check=False).returncode == 0
    assert (said("a=(1 2)\ntrue") == []) is is_read
    assert is_read or shell == "sh"


SYMPOZIUM_SEED = "sympozium-lifecycle-hooks.txt"
KAGENT = """\
apiVersion: kagent.dev/v1alpha2
kind: Agent
metadata: {name: seed}
spec:
  type: Declarative
  declarative:
    systemMessage: x
    tools: [{type: McpServer, mcpServer: {name: shell, kind: RemoteMCPServer}}]
"""


def seed(name):
    """The text of one of the documents that hookline is built from."""
    place = os.environ.get("HOOKLINE_SHARED")
    if not place:
        pytest.skip("set HOOKLINE_SHARED to the folder with seeds")
    return (Path(place) / "seeds" / name).read_text()


@pytest.mark.parametrize(
    "file",
    sorted((Path(__file__).parents[1] / "fixtures" / "sympozium").glob("*.yaml")),
    ids=lambda file: file.stem,
)
def test_the_manifests_of_sympoziums_page_have_no_mistake(hookline, file):
    assert hookline("check", file).returncode == 0
    # What a page leaves out, as the kind of a part, stands before and between its lines.
    written = {line.strip() for line in file.read_text().splitlines()}
    blocks = [
        {line.strip() for line in block.splitlines()}
        for block in re.findall(
            r"(?:^(?:apiVersion|kind|metadata|spec):.*\n(?:^ .*\n)*)+", seed(SYMPOZIUM_SEED), re.M
        )
    ]
    assert len(blocks) == 5
    assert any(block <= written for block in blocks), "it is the page's own"


def test_the_agent_of_kagents_page_has_no_mistake(hookline, tmp_path):
    """The page has lost its indentation."""
    lines = (
        seed("kagent-hooks-pr-1601.txt").partition("\nspec:\nhooks:\n")[2].partition("\n\n")[0].splitlines()
    )
    assert len(lines) == 9
    hooks = "".join(f"    {line}\n" if line.startswith("- ") else f"      {line}\n" for line in lines)
    text = f"{KAGENT}  hooks:\n{hooks}"
    (tmp_path / "agent.yaml").write_text(text)
    done = hookline("check", "agent.yaml", "--json")
    assert done.returncode == 0, done.stdout
    told = [(each["level"], each["key"]) for each in json.loads(done.stdout)["problems"]]
    # Its model and the server of its tools are on the cluster.
    asked = ("spec.declarative.modelConfig", "spec.declarative.tools[0].mcpServer.name")
    assert all(("warning", key) in told for key in asked), told
    (tmp_path / "agent.yaml").write_text(text.replace("event: PreToolUse", "event: PreTolUse"))
    assert hookline("check", "agent.yaml").returncode == 2, "it is read as kagent's"


def test_a_note_on_a_manifest_of_kagent_has_its_line_and_key(hookline, tmp_path):
    (tmp_path / "agent.yaml").write_text(f"{KAGENT}    a2aConfig: {{skills: []}}\n")
    found = json.loads(hookline("check", "--json", "agent.yaml").stdout)["problems"]
    places = [(each["level"], each["code"], each["line"], each["key"]) for each in found]
    assert ("warning", "note", 9, "spec.declarative.a2aConfig") in places


def test_a_workflow_with_all_hooks_of_symphonys_pages_has_no_mistake(hookline, tmp_path):
    """The pages have no file as a whole: they name the hooks, the key of their limit, and the uses of each."""
    page = seed("symphony-workspace-hooks.txt")
    names = re.findall(r"^(\w+)\nRuns (?:once|before|after)", page, re.M)
    assert names == ["after_create", "before_run", "after_run", "before_remove"]
    assert "hooks.timeout_ms" in page
    hooks = "".join(f"  {name}: |\n    if [ ! -d .git ]; then git status || true; fi\n" for name in names)
    (tmp_path / "WORKFLOW.md").write_text(FLOW.format("", f"hooks:\n  timeout_ms: 60000\n{hooks}"))
    done = hookline("check", "WORKFLOW.md")
    assert (done.returncode, done.stdout) == (0, "WORKFLOW.md: no problems\n")


def test_the_code_of_poloss_page_has_no_mistake(hookline, tmp_path):
    page = {line.strip() for line in seed("polos-lifecycle-hooks.txt").splitlines()}
    lines = [line for block in polos.BLOCKS for line in block.splitlines() if line.strip()]
    assert [line for line in lines if line.strip().replace("from hookline", "from polos") not in page] == []
    named = set(re.findall(r"\w+_hook\b|search|send_email", "".join(polos.BLOCKS)))
    missing = sorted(named - set(re.findall(r"def (\w+)", "".join(polos.BLOCKS))))
    defined = [
        f"@tool\ndef {name}(text: str): ...\n"
        if name in ("search", "send_email")
        else f"@hook\ndef {name}(ctx, hook_context): ...\n"
        for name in missing
    ]
    start = polos.IMPORTS + "from hookline import Agent, tool\n" + "".join(defined)
    (tmp_path / "polos_agent.py").write_text(start + "\n".join(polos.BLOCKS))
    hookline.environ["OPENAI_API_KEY"] = "x"
    done = hookline("check", "polos_agent.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_misspelt_entry_of_a_settings_file_is_a_mistake(hookline, tmp_path, wrapped):
    handler = CLIENTS["claude-code"].handler("PreToolUse", Place.PROJECT, 600)
    command = handler["command"] if wrapped else "hookline answer PreToolUse"
    file = tmp_path / "settings.json"
    misspelt = {**handler, "command": command.replace("hookline answer", "hooklin answer")}
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [misspelt]}]}}))
    done = hookline("check", str(file))
    assert (done.returncode, "there is no program 'hooklin'" in done.stdout) == (2, True)


@pytest.mark.parametrize("name", ["codex", "gemini", "qwen"])
def test_the_settings_of_another_client_are_read_as_its_own(hookline, tmp_path, name):
    client = CLIENTS[name]
    event = next(iter(client.events(())))
    handler = client.handler(event, Place.LOCAL, 600)
    file = tmp_path / client.folder / client.settings
    file.parent.mkdir()

    def checked(more=(), **hooks):
        file.write_text(json.dumps({"hooks": hooks, **dict(more)}))
        return hookline("check", str(file))

    assert checked(**{event: [{"hooks": [handler]}]}).returncode == 0
    done = checked(**{event: [{"hooks": [{**handler, "command": "hooklin answer"}]}]})
    assert (done.returncode, "there is no program 'hooklin'" in done.stdout) == (2, True)
    done = checked(**{f"{event}x": [{"hooks": [handler]}]})
    assert (done.returncode, f"did you mean '{event}'?" in done.stdout) == (2, True)
    for off in ({"disableAllHooks": True}, {"hooksConfig": {"enabled": False}}):
        done = checked(off, **{event: [{"hooks": [handler]}]})
        assert (done.returncode, "no hook here runs" in done.stdout) == (0, True), "a warning"
    for odd in ({"hooks": []}, {"hooks": {event: 3}}, {"hooks": {event: [3, {}]}}, {"hooksConfig": 3}):
        assert "Traceback" not in checked(odd).stderr
