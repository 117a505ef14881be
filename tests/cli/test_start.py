"""A command loads only what it needs: most of the time that it takes to start is imports."""

import pytest

SLOW = {"asyncio", "subprocess", "difflib", "ssl", "httpx", "pydantic", "rich", "tomllib"}
FILE = """
version: 1
hooks:
  - {name: guard, on: tool.start, match: kind:shell, python: 'hookline.guards:no_force_push'}
  - {name: listed, on: tool.end, when: {input.command: {contains: push}}, shell: 'true'}
"""


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["--help"], {"yaml", "argparse", "dataclasses"}),
        (["runs"], {"yaml", "textwrap"}),
        (["check", "hookline.yaml"], {"textwrap", "sqlite3", "getpass"}),
    ],
)
def test_a_command_loads_nothing_slow(hookline, words, more):
    (hookline.folder / "hookline.yaml").write_text(FILE)
    hookline.environ["PYTHONPROFILEIMPORTTIME"] = "1"
    done = hookline(*words)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "hookline.cli.app" in loaded
    assert loaded & (SLOW | more) == set()
