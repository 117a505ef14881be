"""The loop: what runs when, what each verdict does at each point, and how often something may be refused."""

import asyncio
from typing import Any

import pytest

from hookline import (
    Agent,
    AgentFailed,
    HookContext,
    HookFailed,
    HookResult,
    ModelFailed,
    Refused,
    Scripted,
    Skipped,
    hook,
    tool,
)
from hookline.engine.record import Begun, Called, Decided, Ended, Question, Verdict, VerdictKind
from tests.agents import EVERY_KEYWORD, Seen, answering, calls, texts

CONTINUE = HookResult.continue_with()


@tool
def echo(text: str = "") -> str:
    return text


def agent(*turns: Any, **given: Any) -> Agent:
    return Agent(id="a", model=Scripted(list(turns)), **{"tools": [echo], **given})


# -- order -----------------------------------------------------------------------------------------------------


async def test_all_scopes_nest_and_every_point_is_met_in_order() -> None:
    seen = Seen()

    await agent(calls("echo"), "done", **seen.everywhere()).run("hi")

    assert seen.points == [
        "run.start",
        "session.start",
        "agent.start",
        "step.start",
        "model.start",
        "model.end",
        "tool.start",
        "tool.end",
        "step.end",
        "step.start",
        "model.start",
        "model.end",
        "step.end",
        "agent.end",
        "session.end",
        "run.end",
    ]
    assert {context.status for context in seen.contexts if context.point.endswith("end")} == {"ok"}
    assert {context.status for context in seen.contexts if context.point.endswith("start")} == {None}


@pytest.mark.rule("design 1.6")
async def test_tools_of_a_step_have_all_their_starts_then_run_together_then_all_their_ends_in_call_order() -> (
    None
):
    done: list[str] = []
    first_waits = asyncio.Event()

    @tool
    async def slow() -> str:
        done.append("slow begins")
        await first_waits.wait()
        done.append("slow ends")
        return "slow"

    @tool
    async def quick() -> str:
        done.append("quick")
        first_waits.set()
        return "quick"

    def note(context: HookContext) -> HookResult:
        done.append(f"{context.point} {context.current_tool}")
        return CONTINUE

    await agent(
        calls("slow", "quick"),
        "done",
        tools=[slow, quick],
        on_tool_start=[answering(note)],
        on_tool_end=[answering(note)],
    ).run("hi")

    assert done == [
        "tool.start slow",
        "tool.start quick",
        "slow begins",
        "quick",
        "slow ends",
        "tool.end slow",
        "tool.end quick",
    ]


@pytest.mark.rule("design 1.6")
async def test_a_fail_at_one_tool_start_means_that_none_of_the_steps_tools_runs() -> None:
    ran: list[str] = []
    seen = Seen()

    @tool
    def act(name: str) -> str:
        ran.append(name)
        return name

    def guard(context: HookContext) -> HookResult:
        return HookResult.fail("no") if context.current_payload["name"] == "second" else CONTINUE

    records: list[Any] = []
    with pytest.raises(HookFailed) as caught:
        await agent(
            calls(("act", {"name": "first"}), ("act", {"name": "second"}), ("act", {"name": "third"})),
            tools=[act],
            on_tool_start=[seen.noting(guard)],
            on_tool_end=[seen.noting()],
        ).run("hi", watch=[records.append])

    assert ran == []
    assert seen.points == ["tool.start", "tool.start"]
    assert caught.value.tool == "act"
    begun = {record.scope_id for record in records if isinstance(record, Begun)}
    ended = {record.scope_id: record for record in records if isinstance(record, Ended)}
    assert set(ended) == begun
    tools = [record for record in ended.values() if record.scope == "tool"]
    assert [record.status for record in tools] == ["cancelled", "failed"]


@pytest.mark.rule("design 1.6")
async def test_all_tool_ends_run_also_when_the_first_of_them_fails_the_run() -> None:
    seen = Seen()
    with pytest.raises(HookFailed, match="bad result"):
        await agent(
            calls("echo", "echo"),
            on_tool_end=[
                seen.noting(lambda at: HookResult.fail("bad result") if at.call_id == "call_1" else CONTINUE)
            ],
        ).run("hi")
    assert [context.call_id for context in seen.contexts] == ["call_1", "call_2"]


# -- block -----------------------------------------------------------------------------------------------------


async def test_a_block_at_agent_start_refuses_the_input_before_any_work() -> None:
    seen = Seen()
    refusing = agent(
        "never", **seen.everywhere("on_end", "on_run_end"), on_start=[answering(HookResult.block("no"))]
    )

    with pytest.raises(Refused) as caught:
        await refusing.run("hi")

    assert (caught.value.reason, caught.value.point) == ("no", "agent.start")
    assert refusing.model.requests == []
    # What never began has no end; the run around it has.
    assert [(context.point, context.status) for context in seen.contexts] == [("run.end", "blocked")]


async def test_a_block_at_step_start_tells_the_agent_why_and_tries_again() -> None:
    seen = Seen()
    blocks = iter([HookResult.block("wait a moment")])
    slow = agent(
        "done",
        on_agent_step_start=[answering(lambda _: next(blocks, CONTINUE))],
        on_agent_step_end=[seen.noting()],
    )

    result = await slow.run("hi")

    assert (result.result, result.total_steps) == ("done", 1)
    assert texts(slow.model.requests[0]) == ["hi", "This step was refused: wait a moment"]
    assert seen.points == ["step.end"]


async def test_a_step_that_is_always_refused_is_tried_four_times() -> None:
    seen = Seen()
    stuck = agent("never", on_agent_step_start=[seen.noting(HookResult.block("closed"))])

    with pytest.raises(Refused, match="refused 3 times, last: closed") as caught:
        await stuck.run("hi")

    assert caught.value.point == "step.start"
    assert len(seen.contexts) == 4
    assert stuck.model.requests == []


async def test_a_block_at_model_start_is_told_to_the_agent_and_asked_again() -> None:
    blocks = iter([HookResult.block("too many words")])
    checked = agent("done", on_model_start=[answering(lambda _: next(blocks, CONTINUE))])

    assert (await checked.run("hi")).result == "done"

    assert texts(checked.model.requests[0]) == [
        "hi",
        "This request was refused: too many words. Answer again.",
    ]


async def test_a_model_call_that_is_always_refused_is_tried_four_times() -> None:
    seen = Seen()
    with pytest.raises(Refused, match="call of the model was refused 3 times") as caught:
        await agent("never", on_model_start=[seen.noting(HookResult.block("closed"))]).run("hi")
    assert caught.value.point == "model.start"
    assert len(seen.contexts) == 4


async def test_a_block_at_model_end_keeps_the_answer_out_of_the_conversation() -> None:
    strict = agent(
        "rude words",
        "kind words",
        "more",
        on_model_end=[
            answering(
                lambda at: HookResult.block("be kind") if "rude" in at.current_output["text"] else CONTINUE
            )
        ],
    )

    assert (await strict.run("hi", session_id="s")).result == "kind words"
    await strict.run("go on", session_id="s")

    assert texts(strict.model.requests[1]) == ["hi", "Your answer was refused: be kind. Answer again."]
    assert texts(strict.model.requests[2]) == ["hi", "kind words", "go on"]


async def test_a_block_at_tool_end_adds_its_reason_for_the_model_and_keeps_the_result() -> None:
    noted = agent(
        calls(("echo", {"text": "42"})),
        "done",
        on_tool_end=[answering(HookResult.block("do not trust this"))],
    )

    result = await noted.run("hi")

    assert texts(noted.model.requests[1])[-1] == "42\ndo not trust this"
    assert result.tool_results[0].result == "42"


async def test_a_block_at_agent_end_makes_its_reason_the_next_input() -> None:
    seen = Seen()
    unfinished = agent(
        "half",
        "whole",
        on_end=[
            seen.noting(
                lambda at: HookResult.block("go on") if at.current_output["result"] == "half" else CONTINUE
            )
        ],
    )

    result = await unfinished.run("hi")

    assert result.result == "whole"
    assert result.total_steps == 2
    assert texts(unfinished.model.requests[1]) == ["hi", "half", "go on"]
    assert [len(context.steps) for context in seen.contexts] == [1, 2]


async def test_an_agent_whose_end_is_always_refused_is_sent_back_eight_times_and_then_ends_well() -> None:
    endless = Agent(
        id="a", model=Scripted(["again"], repeat=True), on_end=[answering(HookResult.block("more"))]
    )
    result = await endless.run("hi")
    assert result.result == "again"
    assert result.notices == ("its end was refused 9 times; it ends all the same, against hook answer: more",)
    assert len(endless.model.requests) == 9


async def test_an_agent_sent_back_after_a_stop_condition_no_longer_says_it_was_stopped() -> None:
    from hookline import executed_tool

    blocks = iter([HookResult.block("say it in words")])
    sent_back = agent(
        calls("echo"),
        "in words",
        stop_conditions=executed_tool(tool_names=["echo"]),
        on_end=[answering(lambda _: next(blocks, CONTINUE))],
    )
    result = await sent_back.run("hi")
    assert (result.result, result.stopped_by) == ("in words", None)


# -- answer ----------------------------------------------------------------------------------------------------


async def test_an_answer_at_agent_start_is_the_result_and_the_end_is_told() -> None:
    seen = Seen()
    cached = agent("never", on_start=[answering(HookResult.answer("from the cache"))], on_end=[seen.noting()])

    result = await cached.run("hi")

    assert result.result == "from the cache"
    assert cached.model.requests == []
    assert (seen.only("agent.end").status, seen.only("agent.end").current_output) == (
        "answered",
        "from the cache",
    )


async def test_an_answered_input_stays_in_the_conversation() -> None:
    answers = iter([HookResult.answer("blue")])
    kept = agent("the sky", on_start=[answering(lambda _: next(answers, CONTINUE))])

    await kept.run("which colour?", session_id="s")
    await kept.run("what has it?", session_id="s")

    assert texts(kept.model.requests[0]) == ["which colour?", "blue", "what has it?"]


async def test_an_answer_at_model_start_stands_for_the_models_words() -> None:
    seen = Seen()
    stubbed = agent(
        "never", on_model_start=[answering(HookResult.answer("stub"))], on_model_end=[seen.noting()]
    )

    assert (await stubbed.run("hi")).result == "stub"

    assert stubbed.model.requests == []
    assert seen.only("model.end").status == "answered"


async def test_an_answer_at_model_start_may_ask_for_tools() -> None:
    plan = iter([HookResult.answer({"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]})])
    planned = agent("done", on_model_start=[answering(lambda _: next(plan, CONTINUE))])

    result = await planned.run("hi")

    assert result.tool_results[0].result == "x"
    assert texts(planned.model.requests[0])[-1] == "x"


async def test_an_answer_at_tool_start_is_the_result_and_the_tool_does_not_run() -> None:
    ran: list[int] = []
    seen = Seen()

    @tool
    def act() -> str:
        ran.append(1)
        return "acted"

    result = await agent(
        calls("act"),
        "done",
        tools=[act],
        on_tool_start=[answering(HookResult.answer({"made": "up"}))],
        on_tool_end=[seen.noting()],
    ).run("hi")

    assert ran == []
    assert (result.tool_results[0].status, result.tool_results[0].result) == ("answered", {"made": "up"})
    assert (seen.only("tool.end").status, seen.only("tool.end").current_output) == (
        "answered",
        {"made": "up"},
    )


# -- skip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "ends"),
    [("on_run_start", []), ("on_start", [("session.end", "skipped"), ("run.end", "skipped")])],
)
async def test_a_skip_ends_the_run_as_skipped_without_work(keyword: str, ends: list[Any]) -> None:
    seen = Seen()
    skipping = agent(
        "never",
        **{keyword: [answering(HookResult.skip("nothing to do"))]},
        **seen.everywhere("on_run_end", "on_session_end", "on_end"),
    )
    records: list[Any] = []

    with pytest.raises(Skipped) as caught:
        await skipping.run("hi", watch=[records.append])

    assert caught.value.reason == "nothing to do"
    assert skipping.model.requests == []
    assert [(context.point, context.status) for context in seen.contexts] == ends
    assert [record.status for record in records if isinstance(record, Ended)][-1] == "skipped"


# -- ask, allow, approval --------------------------------------------------------------------------------------


class Person:
    """Answers every question the same, and keeps them."""

    def __init__(self, kind: VerdictKind, text: str = "", value: Any = None) -> None:
        self.questions: list[Question] = []
        self._verdict = Verdict(kind, text, value, by="ann")

    async def __call__(self, question: Question) -> Verdict:
        self.questions.append(question)
        return self._verdict


ASKING = [answering(HookResult.ask("is this right?")), answering(HookResult.ask("and safe?"))]
CALL = (calls(("echo", {"text": "rm"})), "done")


async def test_an_ask_is_put_to_a_person_once_with_all_reasons_and_the_final_input() -> None:
    person = Person(VerdictKind.APPROVE)
    change = answering(HookResult.continue_with(modified_payload={"text": "ls"}))

    result = await agent(*CALL, on_tool_start=[ASKING[0], change, ASKING[1]]).run("hi", approver=person)

    (question,) = person.questions
    assert [reason.text for reason in question.reasons] == ["is this right?", "and safe?"]
    assert (question.tool, question.point, question.value) == ("echo", "tool.start", {"text": "ls"})
    assert result.tool_results[0].result == "ls"


async def test_a_rejected_tool_call_is_refused_with_the_persons_words() -> None:
    asked = agent(*CALL, on_tool_start=ASKING)
    result = await asked.run("hi", approver=Person(VerdictKind.REJECT, "not on my machine"))
    assert result.tool_results[0].status == "blocked"
    assert texts(asked.model.requests[1])[-1] == "Error: refused: not on my machine"


async def test_a_rewritten_tool_call_runs_with_what_the_person_wrote() -> None:
    person = Person(VerdictKind.REWRITE, value={"text": "echo hello"})
    result = await agent(*CALL, on_tool_start=ASKING).run("hi", approver=person)
    assert result.tool_results[0].result == "echo hello"


async def test_where_nobody_can_be_asked_an_ask_is_a_refusal() -> None:
    asked = agent(*CALL, on_tool_start=ASKING)
    result = await asked.run("hi")
    assert result.tool_results[0].status == "blocked"
    assert "nobody is there to answer" in texts(asked.model.requests[1])[-1]
    with pytest.raises(Refused, match="nobody is there to answer"):
        await agent("never", on_start=ASKING).run("hi")


async def test_an_ask_at_agent_start_and_at_model_start_is_settled_by_a_person() -> None:
    person = Person(VerdictKind.APPROVE)
    result = await agent("ok", on_start=ASKING, on_model_start=ASKING).run("hi", approver=person)
    assert result.result == "ok"
    assert [question.point for question in person.questions] == ["agent.start", "model.start"]


@pytest.mark.parametrize(("kind", "outcome"), [(VerdictKind.APPROVE, "ok"), (VerdictKind.REWRITE, "better")])
async def test_an_ask_at_run_end_is_a_gate_on_the_answer(kind: VerdictKind, outcome: str) -> None:
    person = Person(kind, value="better")
    result = await agent("ok", on_run_end=[ASKING[0]]).run("hi", approver=person)
    assert person.questions[0].value.result == "ok"
    assert result.result == outcome


async def test_an_answer_rejected_at_run_end_fails_the_run() -> None:
    with pytest.raises(HookFailed, match="poor work"):
        await agent("ok", on_run_end=[ASKING[0]]).run("hi", approver=Person(VerdictKind.REJECT, "poor work"))


@tool(approval="always")
def delete(path: str) -> str:
    return f"deleted {path}"


DELETE = calls(("delete", {"path": "/tmp/x"}))


async def test_a_tool_that_needs_approval_asks_before_each_call() -> None:
    person = Person(VerdictKind.APPROVE)
    result = await agent(DELETE, "done", tools=[delete]).run("hi", approver=person)
    assert [reason.text for reason in person.questions[0].reasons] == ["delete needs approval"]
    assert result.tool_results[0].result == "deleted /tmp/x"


async def test_a_hook_that_allows_spares_the_question() -> None:
    person = Person(VerdictKind.REJECT)
    allowing = agent(DELETE, "done", tools=[delete], on_tool_start=[answering(HookResult.allow("in /tmp"))])
    result = await allowing.run("hi", approver=person)
    assert person.questions == []
    assert result.tool_results[0].status == "ok"


async def test_to_continue_is_not_to_allow() -> None:
    person = Person(VerdictKind.REJECT)
    await agent(DELETE, "done", tools=[delete], on_tool_start=[answering(CONTINUE)]).run(
        "hi", approver=person
    )
    assert len(person.questions) == 1


async def test_a_block_beats_an_allow_that_came_before_it() -> None:
    hooks = [answering(HookResult.allow()), answering(HookResult.block("no"))]
    result = await agent(DELETE, "done", tools=[delete], on_tool_start=hooks).run("hi")
    assert result.tool_results[0].status == "blocked"


async def test_a_tool_that_needs_approval_is_refused_where_nobody_can_be_asked() -> None:
    result = await agent(DELETE, "done", tools=[delete]).run("hi")
    assert result.tool_results[0].status == "blocked"


# -- telling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", EVERY_KEYWORD)
async def test_what_a_hook_tells_the_user_is_in_the_result_and_on_the_stream(keyword: str) -> None:
    def telling() -> Agent:
        return agent(
            calls("echo"),
            "done",
            **{keyword: [answering(HookResult.continue_with(tell_user=f"from {keyword}"))]},
        )

    result = await telling().run("hi")
    stream = telling().stream("hi")
    events = [event async for event in stream.events]

    times = 2 if keyword.startswith(("on_agent_step", "on_model")) else 1
    assert result.notices == (f"from {keyword}",) * times
    assert [event.text for event in events if event.type == "notice"] == [f"from {keyword}"] * times


REACHES = {
    "on_run_start": 0,
    "on_session_start": 0,
    "on_start": 0,
    "on_agent_step_start": 0,
    "on_model_start": 0,
    "on_model_end": 1,
    "on_tool_start": 1,
    "on_tool_end": 1,
    "on_agent_step_end": 1,
    "on_end": 2,
    "on_run_end": 2,
}


@pytest.mark.parametrize("keyword", REACHES)
async def test_what_a_hook_tells_the_model_reaches_it_when_it_is_next_asked(keyword: str) -> None:
    tells = iter([HookResult.continue_with(tell_model="a word from the hook")])
    telling = agent(calls("echo"), "done", "bye", **{keyword: [answering(lambda _: next(tells, CONTINUE))]})

    await telling.run("hi", session_id="s")
    await telling.run("again", session_id="s")

    heard = ["a word from the hook" in "\n".join(texts(request)) for request in telling.model.requests]
    first = REACHES[keyword]
    assert heard == [False] * first + [True] * (3 - first)
    said = "\n".join(texts(telling.model.requests[-1]))
    assert said.count("a word from the hook") == 1


@pytest.mark.parametrize("keyword", REACHES)
async def test_what_is_told_never_stands_between_a_tool_call_and_its_result(keyword: str) -> None:
    telling = agent(
        calls("echo", "echo"),
        "done",
        "bye",
        **{keyword: [answering(HookResult.continue_with(tell_model="a word"))]},
    )
    await telling.run("hi", session_id="s")
    await telling.run("again", session_id="s")
    for request in telling.model.requests:
        roles = [message["role"] for message in request.messages]
        for at, message in enumerate(request.messages):
            if message.get("tool_calls"):
                assert roles[at + 1 : at + 3] == ["tool", "tool"]


async def test_what_is_told_with_a_refusal_reaches_the_model_too() -> None:
    tells = iter([HookResult.continue_with(tell_model="a hint"), HookResult.block("no")])
    hooks = [answering(lambda _: next(tells, CONTINUE)), answering(lambda _: next(tells, CONTINUE))]
    telling = agent("first", "second", on_model_end=hooks)
    await telling.run("hi")
    assert texts(telling.model.requests[1])[-2:] == ["Your answer was refused: no. Answer again.", "a hint"]


# -- rubbish from hooks and models -----------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["on_run_start", "on_start", "on_agent_step_start", "on_model_start"])
@pytest.mark.parametrize("rubbish", ["text", [1], {}, {"messages": "none"}, {"messages": [7]}])
async def test_a_payload_that_a_hook_made_unusable_ends_the_run_with_a_message(
    keyword: str, rubbish: Any
) -> None:
    breaking = agent(
        "ok", **{keyword: [answering(HookResult.continue_with(modified_payload=rubbish, replace=True))]}
    )
    point = {"on_agent_step_start": "step.start", "on_model_start": "model.start"}.get(keyword, "start")
    with pytest.raises(AgentFailed, match=f"the hooks at .*{point}"):
        await breaking.run("hi")


@pytest.mark.parametrize("keyword", ["on_end", "on_session_end", "on_run_end"])
async def test_a_bare_value_in_the_answers_place_is_its_result_and_the_rest_is_kept(keyword: str) -> None:
    changing = agent(
        calls("echo"), "done", **{keyword: [answering(HookResult.continue_with(modified_output="replaced"))]}
    )
    result = await changing.run("hi")
    assert result.result == "replaced"
    assert result.total_steps == 2
    assert len(result.tool_results) == 1


async def test_a_model_that_fails_ends_the_run_and_every_scope_that_was_open() -> None:
    records: list[Any] = []
    seen = Seen()

    with pytest.raises(ModelFailed, match="overloaded") as caught:
        await agent(calls("echo"), {"error": "overloaded"}, **seen.everywhere()).run(
            "hi", watch=[records.append]
        )

    assert [(context.point, context.status) for context in seen.contexts][-5:] == [
        ("model.end", "failed"),
        ("step.end", "failed"),
        ("agent.end", "failed"),
        ("session.end", "failed"),
        ("run.end", "failed"),
    ]
    assert caught.value.run_id == seen.contexts[0].run_id
    begun = [record.scope_id for record in records if isinstance(record, Begun)]
    assert sorted(record.scope_id for record in records if isinstance(record, Ended)) == sorted(begun)


async def test_an_end_hook_that_fails_does_not_hide_why_the_run_ended() -> None:
    with pytest.raises(ModelFailed, match="overloaded"):
        await agent({"error": "overloaded"}, on_end=[answering(HookResult.fail("and this too"))]).run("hi")


async def test_a_hook_at_model_start_sees_and_changes_everything_that_is_asked() -> None:
    seen = Seen()
    change = {"system": "Be brief.", "tools": [], "temperature": 0.1, "max_output_tokens": 5}
    asked = agent(
        "ok",
        system_prompt="Be kind.",
        temperature=1.0,
        on_model_start=[seen.noting(HookResult.continue_with(modified_payload=change))],
    )

    await asked.run("hi")

    assert seen.only("model.start").current_payload == {
        "messages": [{"role": "user", "content": "hi"}],
        "system": "Be kind.",
        "tools": ["echo"],
        "temperature": 1.0,
        "top_p": None,
        "max_output_tokens": None,
    }
    (request,) = asked.model.requests
    assert (request.system, request.tools, request.temperature, request.max_output_tokens) == (
        "Be brief.",
        (),
        0.1,
        5,
    )


async def test_a_hook_at_model_end_changes_the_tool_calls_before_they_run() -> None:
    def redirect(context: HookContext) -> HookResult:
        found = context.current_output["tool_calls"]
        if not found:
            return CONTINUE
        return HookResult.continue_with(
            modified_output={"tool_calls": [{**found[0], "arguments": {"text": "new"}}]}
        )

    changed = agent(
        calls(("echo", {"text": "old"}), ("echo", {"text": "other"})),
        "done",
        on_model_end=[answering(redirect)],
    )
    result = await changed.run("hi")
    assert [found.result for found in result.tool_results] == ["new"]
    assert changed.model.requests[1].messages[1]["tool_calls"][0]["arguments"] == {"text": "new"}


async def test_provider_kwargs_reach_the_model_and_a_hook_can_change_them() -> None:
    seen = Seen()
    asked = agent(
        "ok",
        on_start=[
            seen.noting(
                lambda at: HookResult.continue_with(
                    modified_payload={"provider_kwargs": {**at.current_payload["provider_kwargs"], "seed": 7}}
                )
            )
        ],
    )
    await asked.run("hi", top_k=3)
    assert seen.only("agent.start").agent_config.provider_kwargs == {"top_k": 3}
    assert asked.model.requests[0].extra == {"top_k": 3, "seed": 7}


async def test_input_may_be_a_list_of_messages() -> None:
    asked = agent("ok")
    given = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    await asked.run(given)
    assert list(asked.model.requests[0].messages) == given


# -- the record ------------------------------------------------------------------------------------------------


async def test_a_hook_that_only_observes_decides_nothing_and_is_on_record_with_what_it_would_have_said() -> (
    None
):
    @hook(observe=True)
    def watcher(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.fail("too late")

    records: list[Any] = []
    result = await agent("ok", on_start=[watcher]).run("hi", watch=[records.append])

    assert result.result == "ok"
    (called,) = [record for record in records if isinstance(record, Called)]
    assert (called.note, called.mode) == ("would have said fail", "observe")


async def test_a_match_that_fitted_no_call_is_said_in_the_record() -> None:
    @hook(match="Bash")
    def guard(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.block("no")

    records: list[Any] = []
    await agent(calls("echo"), "done", on_tool_start=[guard]).run("hi", watch=[records.append])

    notes = [record.note for record in records if isinstance(record, Decided) and record.note]
    assert notes == ["hook guard: match 'Bash' fitted no tool call of this run (echo)"]


async def test_a_match_that_would_have_fitted_is_not_said_to_fit_nothing() -> None:
    @hook(match="echo")
    def never_reached(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    records: list[Any] = []
    first = answering(HookResult.block("no"))
    await agent(calls("echo"), "done", on_tool_start=[first, never_reached]).run("hi", watch=[records.append])

    assert [record.note for record in records if isinstance(record, Decided) and record.note] == []


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("echo", True),
        ("e.*", True),
        ("ech", False),
        ("kind:shell", False),
        ("kind:other", True),
        ("x|echo", True),
    ],
)
async def test_a_match_picks_the_calls_a_hook_is_for(match: str, fits: bool) -> None:
    ran: list[str] = []

    @hook(match=match, inline=True)
    def picked(ctx: Any, hook_context: HookContext) -> HookResult:
        ran.append(str(hook_context.current_tool))
        return CONTINUE

    await agent(calls("echo"), "done", on_tool_start=[picked]).run("hi")

    assert bool(ran) is fits


async def test_the_record_of_a_run_has_its_declaration_with_the_hooks_of_agent_and_run() -> None:
    @hook(on="tool.start", timeout=5)
    def for_the_run(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    @hook
    def for_the_agent(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    records: list[Any] = []
    await agent("ok", on_start=[for_the_agent]).run("hi", hooks=[for_the_run], watch=[records.append])

    declaration = records[0].declaration
    assert [each["name"] for each in declaration["agent"]["hooks"]] == ["for_the_agent"]
    assert [(each["name"], each["points"], each["timeout"]) for each in declaration["hooks"]] == [
        ("for_the_run", ["tool.start"], 5.0)
    ]
