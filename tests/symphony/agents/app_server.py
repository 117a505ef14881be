"""Speaks the app-server protocol on its stdio as its first argument says; the real one is in tests/real."""

import json
import os
import signal
import subprocess
import sys
import time

HOW = sys.argv[1]
SAW = open(sys.argv[2], "a") if len(sys.argv) > 2 else None  # noqa: SIM115


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def note(method, **params):
    send({"method": method, "params": params})


def received():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message = json.loads(line)
    if SAW:
        SAW.write(line)
        SAW.flush()
    return message


def ends(status="completed", **more):
    note("turn/completed", turn={"id": "turn-1", "status": status, **more})


def asks(method, **params):
    """A request of its own, with a number that ours have too."""
    send({"id": 3, "method": method, "params": params})
    while True:
        message = received()
        if message.get("id") == 3 and "method" not in message:
            return message


def well():
    note(
        "thread/tokenUsage/updated",
        tokenUsage={"total": {"inputTokens": 10, "outputTokens": 8, "totalTokens": 18}},
    )
    note("account/rateLimits/updated", rateLimits={"primary": {"usedPercent": 5}})
    note("item/completed", item={"type": "agentMessage", "text": "the answer"})
    ends()


well_known = well


def failing():
    ends("failed", error={"message": "the model is down"})


def interrupted():
    ends("interrupted")


def dying():
    sys.stderr.write("out of memory\n")
    sys.stderr.flush()
    os._exit(3)


def half_a_line():
    sys.stdout.write('{"method": "turn/comp')
    sys.stdout.flush()
    os._exit(0)


def flooding():
    sys.stdout.write('{"method": "x", "params": {"text": "' + "y" * (11 * 1024 * 1024) + '"}}\n')
    sys.stdout.write("this is no json\n[1, 2]\n\n")
    well()


def silent():
    time.sleep(3600)


def chatty():
    for _ in range(30):
        note("item/agentMessage/delta", delta="still here")
        time.sleep(0.1)
    well()


def approval():
    note("seen", answer=asks("item/commandExecution/requestApproval", command="touch x"))
    ends()


def patch():
    asks("applyPatchApproval")
    ends()


def permissions():
    asks("item/permissions/requestApproval", permissions={"network": {"enabled": True}})
    ends()


def question():
    asks("item/tool/requestUserInput", questions=[{"question": "which branch?"}], reason="which branch?")
    time.sleep(3600)


def elicitation():
    asks("mcpServer/elicitation/request", message="log in?")
    ends()


def unknown_request():
    asks("attestation/generate")
    well()


def tool_call():
    asks("item/tool/call", tool="deploy", arguments={}, callId="c")
    well()


def leaving_children():
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("item/started", item={"type": "commandExecution", "command": "sleep 3600"})
    while True:
        time.sleep(1)


THREADS = []
USERS = {"key": "/home/hooks.json:stop:0:0", "command": "echo theirs", "currentHash": "sha256:1"}


def hooks_of(params):
    """Its list of hooks, as the real one would give it: what is not trusted by its hash is not trusted."""
    config = THREADS[int(params["threadId"].partition("-")[2]) - 1] if "threadId" in params else {}
    hooks = config.get("hooks", {})
    state = hooks.get("state", {})
    commands = [
        handler["command"]
        for event, groups in hooks.items()
        if event != "state"
        for group in groups
        for handler in group["hooks"]
    ]
    ours = [
        {"key": f"flags:{number}", "command": command, "currentHash": f"sha256:{len(command)}"}
        for number, command in enumerate(commands)
    ]
    found = []
    for each in [USERS, *ours]:
        known = state.get(each["key"], {})
        trusted = HOW != "distrusts" and known.get("trusted_hash") == each["currentHash"]
        status = "trusted" if trusted else "untrusted"
        found.append({**each, "enabled": known.get("enabled", True), "trustStatus": status})
    return [{"hooks": [] if HOW == "switched_off" else found}]


def main():
    if HOW == "dies at start":
        sys.exit("cannot read the configuration")
    if HOW == "never answers":
        time.sleep(3600)
    while True:
        message = received()
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            send({"id": number, "result": {"userAgent": "fake"}})
        elif method == "thread/start" and HOW == "refuses":
            send({"id": number, "error": {"code": -32600, "message": "unknown variant `reject`"}})
        elif method == "thread/start" and HOW == "no id":
            send({"id": number, "result": {}})
        elif method == "thread/start":
            THREADS.append(message["params"].get("config", {}))
            thread = {"id": f"thread-{len(THREADS)}"}
            note("thread/started", thread=thread)
            send({"id": number, "result": {"thread": thread}})
        elif method == "config/read" and HOW in ("too_old", "refuses"):
            send({"id": number, "error": {"code": -32601, "message": "unknown method config/read"}})
        elif method == "config/read":
            known = {message["params"]["cwd"]: {"trust_level": "trusted"}} if HOW == "well_known" else {}
            send({"id": number, "result": {"config": {"projects": known}}})
        elif method == "hooks/list" and HOW == "too_old":
            send({"id": number, "error": {"code": -32601, "message": "unknown method hooks/list"}})
        elif method == "hooks/list":
            send({"id": number, "result": {"data": hooks_of(message["params"])}})
        elif method == "thread/unsubscribe":
            send({"id": number, "result": {}})
        elif method == "turn/start":
            note("turn/started", turn={"id": "turn-1"})
            send({"id": number, "result": {"turn": {"id": "turn-1", "status": "inProgress"}}})
            globals()[HOW]()
        elif method == "turn/interrupt":
            send({"id": number, "result": {}})
            ends("interrupted")


main()
