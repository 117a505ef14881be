"""Every Python sample of the README and the docs runs; every local link leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hookline import HookAction, Status

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
SAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")

SAMPLES = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}")
    for page in PAGES
    for found in SAMPLE.finditer(page.read_text())
    for code in [found.group(1)]
]


@pytest.mark.parametrize("code", SAMPLES)
def test_a_sample_runs(code, tmp_path):
    file = tmp_path / "sample.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_are_samples():
    assert len(SAMPLES) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = [page.parent / target for target in LINK.findall(page.read_text())]
    assert [str(target) for target in targets if not target.exists()] == []


def test_every_status_and_every_verdict_is_explained():
    scopes = (ROOT / "docs/concepts/scopes.md").read_text()
    results = (ROOT / "docs/concepts/results.md").read_text()
    assert [status for status in Status if f"`{status}`" not in scopes] == []
    assert [action for action in HookAction if f"`{action}" not in results] == []
