#!/bin/sh
# A stand-in for an agent: the task is in TASK, what it finds goes to the workspace, its answer to result.json.
found=$(cat "$WORKSPACE/context/incidents.txt")
echo "# Report: $found" > "$WORKSPACE/report.md"
printf '{"status": "success", "response": "%s"}\n' "$found" > "$IPC_DIR/output/result.json"
touch "$IPC_DIR/done"
