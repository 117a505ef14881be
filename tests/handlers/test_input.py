"""What hooks outside this process are given, whatever the model made up."""

import json
import os

import pytest

from hookline.engine.context import HookContext, WorkflowContext
from hookline.handlers.process import context_json, environment, folder


def context(**more) -> HookContext:
    return HookContext(workflow_id="w", point="tool.end", run_id="r1", **more)


def test_the_facts_are_variables_and_what_is_not_known_is_not_set():
    known = context(
        current_tool="bash", tool_kind="shell", agent="a", session_id="s", status="ok", call_id="c"
    )
    ctx = WorkflowContext(workflow_id="w", workspace="/work/space")
    env = environment({"PATH": "/bin", "HOOKLINE_STATUS": "stale"}, ctx, known, None)
    assert env == {
        "PATH": "/bin",
        "HOOKLINE_POINT": "tool.end",
        "HOOKLINE_RUN_ID": "r1",
        "HOOKLINE_CALL_ID": "c",
        "HOOKLINE_ATTEMPT": "1",
        "HOOKLINE_AGENT": "a",
        "HOOKLINE_TOOL": "bash",
        "HOOKLINE_TOOL_KIND": "shell",
        "HOOKLINE_SESSION_ID": "s",
        "HOOKLINE_CWD": "/work/space",
        "HOOKLINE_STATUS": "ok",
    }
    bare = environment({"HOOKLINE_STATUS": "stale", "HOOKLINE_TOOL": "stale"}, None, context(), "/x")
    assert bare.keys() == {"HOOKLINE_POINT", "HOOKLINE_RUN_ID", "HOOKLINE_ATTEMPT", "HOOKLINE_CWD"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\0b", "ab"), ("\ud800x", "?x"), ("é" * 5000, "é" * 2048), ("\0", "")],
)
def test_a_name_that_no_variable_can_hold_is_made_to_fit(name, shown):
    assert environment({}, None, context(current_tool=name), None)["HOOKLINE_TOOL"] == shown


def test_a_process_stands_where_it_was_told_else_in_the_workspace():
    ctx = WorkflowContext(workflow_id="w", workspace="/space")
    assert folder("/told", ctx) == "/told"
    assert folder(None, ctx) == "/space"
    assert folder(None, None) == os.getcwd()


def test_the_context_is_strict_json_whatever_is_in_it():
    payload = {"nan": float("nan"), "inf": [float("inf")], "half": "\ud800", "odd": {1, 2}, "ok": 1.5}
    read = json.loads(context_json(context(current_payload=payload)), parse_constant=pytest.fail)
    assert read["point"] == "tool.end"
    assert read["current_payload"] == {
        "nan": None,
        "inf": [None],
        "half": "\ud800",
        "odd": "{1, 2}",
        "ok": 1.5,
    }
