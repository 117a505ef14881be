"""The variables of hooks and agent, and what an agent left as its result."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.engine.plain import cut
from hookline.errors import FileError
from hookline.kube.pod_state import ContainerPhase, EndReason
from hookline.sympozium.environment import (
    MOST_RESULT,
    Secrets,
    expanded,
    for_agent,
    for_hook,
    task_input,
)
from hookline.sympozium.phases import AgentSeen, Seen
from hookline.sympozium.run.agent import BEGIN, END, MOST_BYTES, Result, ended, from_output, parsed
from hookline.sympozium.types import ContainerHook, ModelSpec, RunSpec, SecretRef, TaskSpec
from hookline.table import Location

RUN = RunSpec(
    name="r-1", namespace="ops", instance="alice", task="look", session_key="s", env={"B": "run", "A": "run"}
)
HOOK = ContainerHook(name="h", image="i", env={"B": "hook"})


def answered(result: str, exit_code: int) -> Seen:
    return Seen(agent=AgentSeen(state=ContainerPhase.ENDED, exit_code=exit_code, result=result))


@pytest.mark.statement("SZ29", "SZ30", "SZ32", "SZ41", "SZ42", "SZ43", "SZ44")
@pytest.mark.rule("sympozium 1.10", "sympozium 1.17.5")
def test_every_hook_has_the_base_variables_and_postRun_hooks_the_end_besides():
    base = {"AGENT_RUN_ID": "r-1", "INSTANCE_NAME": "alice", "AGENT_NAMESPACE": "ops"}
    before = for_hook(RUN, HOOK).resolved(Secrets())
    after = for_hook(RUN, HOOK, answered("fine", 0)).resolved(Secrets())
    assert before == {**base, "A": "run", "B": "hook"}
    assert after == {**before, "AGENT_EXIT_CODE": "0", "AGENT_RESULT": "fine"}


@pytest.mark.statement("SZ31")
@pytest.mark.rule("sympozium B11")
def test_the_exit_code_is_the_real_one():
    assert for_hook(RUN, HOOK, answered("", 137)).fixed["AGENT_EXIT_CODE"] == "137"


@pytest.mark.rule("sympozium B10")
def test_a_hook_s_own_variable_beats_the_run_s_before_and_after_and_neither_beats_what_is_set_for_it():
    names = ("AGENT_RUN_ID", "AGENT_RESULT", "AGENT_EXIT_CODE", "GATE_MODE", "X")
    run = RunSpec(name="r", env=dict.fromkeys(names, "run"))
    hook = ContainerHook(name="h", image="i", env=dict.fromkeys(names, "hook"))
    before = for_hook(run, hook).resolved(Secrets())
    after = for_hook(run, hook, answered("no", 1)).resolved(Secrets())
    assert (before["X"], after["X"]) == ("hook", "hook")
    assert (before["AGENT_RUN_ID"], after["AGENT_RUN_ID"]) == ("r", "r")
    assert (after["AGENT_RESULT"], after["AGENT_EXIT_CODE"]) == ("no", "1")
    assert not {"AGENT_RESULT", "AGENT_EXIT_CODE", "GATE_MODE"} & set(before)
    assert "GATE_MODE" not in after


@pytest.mark.rule("sympozium 1.14")
def test_a_gate_hook_knows_that_it_is_one():
    gate = ContainerHook(name="g", image="i", gate=True)
    assert for_hook(RUN, gate, answered("", 0)).fixed["GATE_MODE"] == "true"


@pytest.mark.statement("SZ33")
@pytest.mark.rule("sympozium 1.17.6", "sympozium B11")
@given(st.text(), st.integers(0, 3))
def test_a_long_result_is_cut_to_32_KiB_and_never_inside_a_character(text, shift):
    whole = "x" * shift + (text + "\N{SNOWMAN}") * 20_000
    found = cut(whole, MOST_RESULT)
    assert MOST_RESULT - 3 <= len(found.encode()) <= MOST_RESULT
    clean = whole.replace("\0", "").encode("utf-8", "replace").decode()
    assert clean.startswith(found)


def test_a_result_that_just_fits_is_whole():
    assert cut("x" * MOST_RESULT, MOST_RESULT) == "x" * MOST_RESULT


@pytest.mark.rule("sympozium B11", "sympozium 1.10")
def test_an_answer_with_dollars_reaches_the_hook_as_it_is():
    text = "costs $$5, see $(AGENT_RUN_ID)"
    assert for_hook(RUN, HOOK, answered(text, 0)).resolved(Secrets())["AGENT_RESULT"] == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$A $(date)", "$A $(date)"),
        ("100$", "100$"),
    ],
)
def test_references_mean_what_they_mean_to_kubernetes(text, found):
    assert expanded(text, {"A": "1"}) == found


def test_a_value_may_refer_to_a_variable_before_it():
    hook = ContainerHook(
        name="h", image="i", env={"URL": "http://x/$(AGENT_RUN_ID)", "TWICE": "$(URL)$(LATER)"}
    )
    found = for_hook(RUN, hook).resolved(Secrets())
    assert (found["URL"], found["TWICE"]) == ("http://x/r-1", "http://x/r-1$(LATER)")


def test_secrets_are_references_until_somebody_looks_them_up():
    ref = SecretRef(name="pd", key="token", place=Location("run.yaml", 7, "env[0]"))
    hook = ContainerHook(
        name="h", image="i", env={"T": ref, "U": SecretRef(name="pd", key="other", optional=True)}
    )
    made = for_hook(RUN, hook)
    assert made.given["T"] == ref
    found = made.resolved(Secrets(known={"pd": {"token": "a$$b"}}))
    assert (found["T"], "U" in found) == ("a$$b", False)
    with pytest.raises(FileError, match=r"run.yaml:7: env\[0\]: there is no Secret 'pd'; put pd/token="):
        made.resolved(Secrets())


@pytest.mark.rule("sympozium 5.1")
def test_the_agent_is_told_its_task_its_model_and_where_it_is():
    run = RunSpec(
        name="r",
        instance="a",
        task="look",
        session_key="s",
        system_prompt="be brief",
        model=ModelSpec(provider="openai", model="m", base_url="http://x", auth_secret="key"),
        timeout=1234567.5,
        tools_denied=("bash", "web"),
        env={"TASK": "other", "TOOLS_ENABLED": "false", "LOG": "1"},
    )
    made = for_agent(run)
    found = made.resolved(Secrets(known={"key": {"OPENAI_API_KEY": "sk"}}))
    assert (found["TASK"], found["SYSTEM_PROMPT"], found["SESSION_KEY"]) == ("look", "be brief", "s")
    assert (found["MODEL_PROVIDER"], found["MODEL_NAME"], found["MODEL_BASE_URL"]) == (
        "openai",
        "m",
        "http://x",
    )
    assert (found["RUN_TIMEOUT"], found["TOOL_POLICY_DENY"]) == ("1234567.5s", "bash,web")
    assert (found["TOOLS_ENABLED"], found["LOG"], found["USE_CONTEXT"]) == ("false", "1", "true")
    assert (found["OPENAI_API_KEY"], "ANTHROPIC_API_KEY" in found) == ("sk", False)


@pytest.mark.statement("SZ21")
@pytest.mark.rule("sympozium 1.17.19")
def test_the_task_input_is_the_text_or_the_object():
    assert json.loads(task_input(RUN)) == {"task": "look"}
    run = RunSpec(name="r", task=TaskSpec(mode="sidecar-driven", tool="t", parameters={"a": "b"}))
    assert json.loads(task_input(run))["task"] == {
        "mode": "sidecar-driven",
        "tool": "t",
        "parameters": {"a": "b"},
    }
    assert "TASK" not in for_agent(run).fixed


@pytest.mark.rule("sympozium 5.4", "sympozium 1.17.21")
@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"status": "success", "response": "hi"}', Result(status="success", response="hi")),
        ('{"status": "success"}', Result(status="success")),
        ('{"status": "error", "error": "no"}', Result(status="error", error="no")),
        ('{"status": "skipped", "response": "idle"}', Result(status="skipped", response="idle")),
        (
            '{"status": "success", "metrics": {"inputTokens": 5, "toolCalls": -1}}',
            Result(status="success", metrics={"inputTokens": 0, "toolCalls": 0}),
        ),
        (
            '{"status": "success", "metrics": {"outputTokens": 99999999999999999999, "inputTokens": NaN}}',
            Result(status="success", metrics={"outputTokens": 10_000_000_000}),
        ),
    ],
)
def test_a_result_file_says_what_it_says(content, found):
    assert parsed(content) == found


@pytest.mark.rule("sympozium 1.17.21")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not whole JSON"),
        ('{"status": "success", "resp', "is not whole JSON"),
        (b"\xff\x00\x01", "is not text in UTF-8"),
        ("[1]", "is a list; it must be an object"),
        ('{"status": "done"}', "has the status 'done'; known: success, error, skipped"),
        ('{"status": "success", "response": 3}', "has a response that is not a text"),
        (b" " * (MOST_BYTES + 1), "bytes; at most"),
    ],
)
def test_what_is_no_result_is_never_taken_for_one(content, why):
    assert why in parsed(content).wrong
    made = ended(0, parsed(content))
    assert (made.succeeded, "the agent's result" in made.error) == (False, True)


def marked(response, status="success"):
    return f"{BEGIN}{json.dumps({'status': status, 'response': response}, ensure_ascii=False)}{END}"


@pytest.mark.rule("sympozium B12", "sympozium 1.17.21")
@pytest.mark.parametrize(
    ("text", "response"),
    [
        (f"log\n{marked('hi')}\n", "hi"),
        (f"{marked('old')}\n{marked('new')}\n" + "more\n" * 2000, "new"),
        (marked(f"quotes {BEGIN} and {END} itself"), f"quotes {BEGIN} and {END} itself"),
        (f"{marked('old')}\n{marked('a' + chr(0x2028) + BEGIN)}", f"a{chr(0x2028)}{BEGIN}"),
        (marked("x" * 500_000), "x" * 500_000),
        (f'{BEGIN}\n{{"status": "success", "response": "spread"}}\n{END}\n', "spread"),
    ],
)
def test_the_last_whole_marker_in_the_output_counts(text, response):
    assert from_output(text) == Result(status="success", response=response)


def test_output_without_a_marker_has_no_result_and_half_a_marker_is_wrong():
    assert from_output("just text\n") is None
    assert "has no __SYMPOZIUM_END__" in from_output(f"log\n{BEGIN}{{").wrong


@pytest.mark.parametrize(
    ("code", "result", "reason", "expected"),
    [
        (0, Result(status="success", response="a"), EndReason.EXITED, ("a", "", None)),
        (0, None, EndReason.EXITED, ("", "", None)),
        (0, Result(status="skipped", response=" idle \n"), EndReason.EXITED, ("", "", "idle")),
        (0, Result(status="skipped"), EndReason.EXITED, ("", "", "preRun hook requested skip")),
        (
            1,
            Result(status="skipped", response="x"),
            EndReason.EXITED,
            ("x", "agent exited with code 1: last", None),
        ),
        (2, None, EndReason.EXITED, ("", "agent exited with code 2: last", None)),
        (1, Result(status="error", error="no"), EndReason.EXITED, ("", "no", None)),
        (
            3,
            Result(status="success", response="a"),
            EndReason.EXITED,
            ("a", "agent exited with code 3: last", None),
        ),
        (0, Result(status="success", response="a"), EndReason.TIMED_OUT, ("a", "", None)),
    ],
)
def test_how_an_agent_ended_follows_from_its_code_and_what_it_left(code, result, reason, expected):
    made = ended(code, result, reason=reason, tail="first\nlast\n")
    assert (made.result, made.error, made.skipped) == expected
    assert made.succeeded is (code == 0 and reason is EndReason.EXITED and not made.error)


def test_tokens_are_added_up():
    metrics = {"inputTokens": 2, "outputTokens": 3}
    assert ended(0, Result(status="success", metrics=metrics)).usage["totalTokens"] == 5
