"""The benchmark, which no test runs: a section that breaks costs only itself. The type checker sees that it names nothing that is gone."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def test_a_section_that_breaks_is_named_and_costs_only_itself():
    code = f"""
import json, sys
sys.path.insert(0, {str(BENCH)!r})
import run
run.SECTIONS = {{
    "imports": run.Section("import", lambda quick: 1 / 0),
    "agents": run.Section("agents", lambda quick: [{{"agents": 1}}]),
}}
print(json.dumps(run.sections(run.SECTIONS, True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "broken": {"imports": "ZeroDivisionError: division by zero"},
        "imports": [],
        "agents": [{"agents": 1}],
    }
    assert "not measured: ZeroDivisionError" in done.stderr
