#!/usr/bin/env python3
"""When a session begins: what the model should know about it."""

import json
import os
import sys

event = json.load(sys.stdin)
context = (
    f"Session {event['session_id']} of {os.environ['KAGENT_NAME']}, in {os.path.basename(event['cwd'])}."
)
print(json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": context}}))
