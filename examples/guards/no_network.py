"""A hook as a command: one JSON event on stdin, an answer on stdout. Claude Code can call it as it is."""

import json
import sys

event = json.load(sys.stdin)
print(json.dumps({"decision": "block", "reason": f"no network from {event['tool_name']} here"}))
