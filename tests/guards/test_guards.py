"""The guards are hooks like any other, and cost nothing to import."""

import subprocess
import sys

import pytest

from hookline import guards
from hookline.engine.hook import options_of
from hookline.handlers.python import python_hook

HEAVY = ("anthropic", "openai", "pydantic", "re2", "regex", "rich", "typer", "yaml")
POINTS = {
    "no_force_push": ["tool.start"],
    "no_writes_outside": ["tool.start"],
    "mask_secrets": ["agent.end", "model.end", "tool.end"],
    "redact_emails": ["agent.end", "agent.start", "model.end", "tool.end"],
    "redact_phones": ["agent.end", "agent.start", "model.end", "tool.end"],
}


@pytest.mark.parametrize(("name", "points"), POINTS.items())
def test_a_guard_is_a_hook_with_its_points_and_its_name(name, points):
    live = python_hook(getattr(guards, name))
    assert (live.name, sorted(live.points)) == (name, points)


def test_what_a_factory_makes_is_the_same_hook_otherwise_told():
    assert options_of(guards.no_force_push_unless(lease=True)) == options_of(guards.no_force_push)
    assert options_of(guards.no_writes_outside_of("/x")) == options_of(guards.no_writes_outside)


def test_every_public_name_is_there():
    assert [name for name in guards.__all__ if not callable(getattr(guards, name, None))] == []


def test_importing_them_loads_nothing_heavy():
    code = f"import sys, hookline.guards; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
