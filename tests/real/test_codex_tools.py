"""The real Codex CLI, offline: what it calls its tools before a hook, and whether our table of them says the same."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hookline.claude.tools import TOOLS, tool_named
from tests.real.clients import CLIENTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

# One of those that Codex knows by itself and gives apply_patch to.
MODEL = "gpt-5.5"

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n"
SERVER = """
import json, sys

TOOL = {"name": "echo", "description": "says it", "inputSchema": {"type": "object", "properties": {"text": {}}}}
ANSWERS = {
    "initialize": lambda given: {
        "protocolVersion": given["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "demo", "version": "1"},
    },
    "tools/list": lambda given: {"tools": [TOOL]},
    "tools/call": lambda given: {"content": [{"type": "text", "text": "said"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = ANSWERS.get(message["method"], lambda given: {})(message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def called(name, number, **arguments):
    """What a model says to call a function; SESSION stands for the shell that is still running."""
    given = json.dumps(arguments).replace('"SESSION"', "SESSION")
    return {
        "type": "function_call",
        "id": f"f{number}",
        "call_id": f"c{number}",
        "name": name,
        "arguments": given,
    }


TURNS = [
    called("exec_command", 1, cmd="echo hi"),
    {**called("echo", 2, text="x"), "namespace": "mcp__demo"},
    {"type": "custom_tool_call", "id": "f3", "call_id": "c3", "name": "apply_patch", "input": PATCH},
    called("exec_command", 4, cmd=f"apply_patch <<'EOF'\n{PATCH.replace('made', 'again')}EOF\n"),
    called("exec_command", 5, cmd=f"echo {PIXEL} | base64 -d > a.png"),
    called("view_image", 6, path="a.png"),
    called("exec_command", 7, cmd="sh", yield_time_ms=300, tty=True),
    called("write_stdin", 8, session_id="SESSION", chars="echo typed > typed.txt; exit\n"),
    called("exec_command", 12, cmd="until [ -s typed.txt ]; do sleep 0.1; done", yield_time_ms=30_000),
    called("list_mcp_resources", 9),
    {**called("spawn_agent", 10, message="hello"), "namespace": "multi_agent_v1"},
    {
        "type": "web_search_call",
        "id": "w11",
        "status": "completed",
        "action": {"type": "search", "query": "hooks"},
    },
]


class Model(ThreadingHTTPServer):
    """The Responses API on loopback: one item of the script for each request, then a last word."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Responding)
        self.turns = iter(TURNS)
        self.lock = threading.Lock()
        self.requests = []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self.shutdown()
        self.server_close()

    def item(self, body):
        with self.lock:
            self.requests.append(body)
            # An agent that was spawned asks too, and its answer is no part of the script.
            said = json.dumps(body["input"])
            main = '"text": "go"' in said
            item = next(self.turns, None) if main else None
        if item is None:
            text = [{"type": "output_text", "text": "done"}]
            return {"type": "message", "id": "m", "role": "assistant", "content": text}
        running = re.findall(r"session ID (\d+)", said)
        return json.loads(json.dumps(item).replace("SESSION", running[-1] if running else "0"))


class _Responding(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
        events = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "item": self.server.item(body)},
            {"type": "response.completed", "response": {"id": "r", "usage": usage}},
        ]
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def codex():
    return CLIENTS["codex"].installed()


@pytest.fixture(scope="module")
def seen(codex, tmp_path_factory):
    """What each hook was given before and after the tools of the script, and the folder they worked in."""
    folder = tmp_path_factory.mktemp("codex")
    home, project, record = folder / "home", folder / "project", folder / "seen.jsonl"
    home.mkdir()
    project.mkdir()
    (folder / "server.py").write_text(SERVER)
    hook = [{"hooks": [{"type": "command", "command": f"cat >> {record}; echo >> {record}", "timeout": 60}]}]
    (home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": hook, "PostToolUse": hook}}))
    with Model() as model:
        (home / "config.toml").write_text(
            f'model = "{MODEL}"\nmodel_provider = "fake"\n'
            f'[model_providers.fake]\nname = "fake"\nbase_url = "http://127.0.0.1:{model.server_port}/v1"\n'
            'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
            f'[mcp_servers.demo]\ncommand = "{sys.executable}"\nargs = ["{folder / "server.py"}"]\n'
        )
        words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--json"]
        done = subprocess.run(
            [codex, *words, "-s", "danger-full-access", "-C", project, "go"],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "CODEX_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        left = list(model.turns)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left == [], "the whole script was played"
    lines = [json.loads(line) for line in record.read_text().splitlines() if line]
    return project, lines


def before(seen):
    return [line for line in seen[1] if line["hook_event_name"] == "PreToolUse"]


def test_the_names_and_keys_that_codex_sends_are_those_of_our_table(seen):
    sent = {}
    for line in before(seen):
        sent.setdefault(line["tool_name"], line["tool_input"])
    kinds = {name: tool_named(name, "codex").kind for name in sent}
    assert kinds == {
        "Bash": "shell",
        "mcp__demo__echo": "mcp",
        "apply_patch": "write",
        "view_image": "read",
        "list_mcp_resources": "mcp",
        "spawn_agent": "agent",
    }
    for name, given in sent.items():
        wanted = set(tool_named(name, "codex").keys.values())
        assert wanted <= set(given), f"{name} is given {sorted(given)}"


def test_a_command_and_a_patch_arrive_word_for_word(seen):
    assert before(seen)[0]["tool_input"] == {"command": "echo hi"}
    patch = next(line for line in before(seen) if line["tool_name"] == "apply_patch")
    assert patch["tool_input"] == {"command": PATCH}
    assert (seen[0] / "made.txt").read_text() == "hello\n"


def test_a_patch_in_a_shell_is_a_shell_call_that_a_guard_of_writes_can_read(seen):
    from hookline.guards.writes import shell_targets

    call = next(
        line for line in before(seen) if line["tool_input"].get("command", "").startswith("apply_patch")
    )
    assert call["tool_name"] == "Bash"
    assert (seen[0] / "again.txt").exists()
    assert shell_targets(call["tool_input"]["command"], "/work") == ["/work/again.txt"]


def test_codex_asks_no_hook_about_what_is_typed_into_a_shell_nor_about_a_web_search(seen):
    """As the guide says. When this fails, Codex has begun to ask: take the words out of the guide and the table."""
    assert (seen[0] / "typed.txt").read_text() == "typed\n", "it was typed, and it ran"
    names = {line["tool_name"] for line in seen[1]}
    assert names & {"write_stdin", "web_search"} == set()
    assert {"write_stdin", "web_search"} <= set(TOOLS["codex"]), "older and newer versions may ask"
