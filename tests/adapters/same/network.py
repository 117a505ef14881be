import json
import sys

event = json.load(sys.stdin)
print(f"no network for {event['tool_input']['command'].split()[0]}", file=sys.stderr)
sys.exit(2)
