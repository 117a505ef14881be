"""Stands between hookline and `codex app-server`: keeps every message, and asks one thing that nobody knows.

between.py KEPT QUESTION COMMAND...: the end of a turn is held back until the question is answered. No QUESTION, no
question.
"""

import json
import subprocess
import sys
import threading

KEPT, QUESTION, *COMMAND = sys.argv[1:]
ID = "from-between"
answered = threading.Event()
lock = threading.Lock()
kept = open(KEPT, "a")  # noqa: SIM115
child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def keep(who, message):
    with lock:
        kept.write(json.dumps({"from": who, "message": message}) + "\n")
        kept.flush()


def say(line):
    sys.stdout.write(line)
    sys.stdout.flush()


def listen():
    for line in child.stdout:
        message = json.loads(line)
        keep("server", message)
        method = message.get("method")
        if method == "turn/completed" and QUESTION:
            answered.wait()
        say(line)
        if method == "turn/started" and QUESTION:
            say(json.dumps({"id": ID, "method": QUESTION, "params": {}}) + "\n")


threading.Thread(target=listen, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    keep("client", message)
    if message.get("id") == ID and "method" not in message:
        answered.set()
    else:
        child.stdin.write(line)
child.stdin.close()
sys.exit(child.wait())
