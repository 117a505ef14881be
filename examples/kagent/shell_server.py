"""An MCP server with one tool, bash, in the standard library alone: one JSON message a line, both ways."""

import json
import subprocess
import sys

BASH = {
    "name": "bash",
    "description": "Run a command in a shell.",
    "inputSchema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def initialized(params):
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "shell", "version": "1"},
    }


def listed(params):
    return {"tools": [BASH]}


def called(params):
    done = subprocess.run(
        ["sh", "-c", params["arguments"]["command"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return {"content": [{"type": "text", "text": done.stdout}], "isError": done.returncode != 0}


ANSWERS = {"initialize": initialized, "tools/list": listed, "tools/call": called}

for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") is None:
        continue  # a notification wants no answer
    answer = ANSWERS.get(asked["method"])
    if answer is None:
        said = {"error": {"code": -32601, "message": f"no method {asked['method']}"}}
    else:
        said = {"result": answer(asked.get("params") or {})}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
