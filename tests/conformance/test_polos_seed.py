"""What the Polos page on lifecycle hooks states, statement by statement, with its own code."""

import inspect
from typing import Any

import pytest

import hookline
from hookline import (
    Agent,
    AgentConfig,
    HookContext,
    HookFailed,
    HookResult,
    Scripted,
    Step,
    WorkflowContext,
    hook,
    tool,
)
from tests.agents import SEEDS_KEYWORDS, Seen, answering, calls, texts
from tests.conformance import polos_seed_blocks as seed
from tests.fakes import FakeProvider

CONTINUE = HookResult.continue_with()


def run_block(*blocks: str, **names: Any) -> dict[str, Any]:
    """What the page's own code defines; `names` are those that the page leaves undefined."""
    space: dict[str, Any] = dict(names)
    exec(seed.IMPORTS + "".join(blocks), space)
    return space


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


@tool
def send_email(to: str) -> dict[str, Any]:
    """Send an e-mail."""
    return {"sent": to}


def one_tool_agent(*turns: Any, **given: Any) -> Agent:
    """Calls search once, then answers."""
    model = Scripted([calls(("search", {"query": "cats"})), "done", *turns])
    return Agent(id="one-tool", model=model, tools=[search], **given)


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the real openai client talk to a scripted server on loopback."""
    providers: list[FakeProvider] = []

    def serve(*turns: Any) -> FakeProvider:
        provider = FakeProvider(list(turns))
        providers.append(provider)
        monkeypatch.setenv("OPENAI_BASE_URL", provider.openai)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        return provider

    yield serve
    for provider in providers:
        provider.close()


# -- what hooks are --------------------------------------------------------------------------------------------


@pytest.mark.statement("PO1")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_a_hook_at_any_execution_point_decides_what_the_agent_does(keyword: str) -> None:
    refusing = one_tool_agent(**{keyword: [answering(HookResult.fail("not like this"))]})

    with pytest.raises(HookFailed) as caught:
        await refusing.run("hi")

    assert caught.value.reason == "not like this"
    assert (await one_tool_agent(**{keyword: [answering(CONTINUE)]}).run("hi")).result == "done"


@pytest.mark.statement("PO2")
async def test_hooks_can_log_and_validate(capsys: pytest.CaptureFixture[str]) -> None:
    @hook
    def validate(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
        print(f"checking {hook_context.current_payload['input']}")
        return HookResult.fail("too short") if len(hook_context.current_payload["input"]) < 3 else CONTINUE

    agent = Agent(id="a", model=Scripted(["fine"]), on_start=[validate])

    with pytest.raises(HookFailed, match="too short"):
        await agent.run("hi")
    assert (await agent.run("hello")).result == "fine"
    assert capsys.readouterr().out == "checking hi\nchecking hello\n"


@pytest.mark.statement("PO3")
async def test_a_hook_changes_what_goes_into_the_agent_and_into_a_tool() -> None:
    model = Scripted([calls(("search", {"query": "cats"})), "done"])
    agent = Agent(
        id="a",
        model=model,
        tools=[search],
        on_start=[answering(HookResult.continue_with(modified_payload={"input": "changed input"}))],
        on_tool_start=[answering(HookResult.continue_with(modified_payload={"query": "dogs"}))],
    )

    result = await agent.run("hi")

    assert texts(model.requests[0]) == ["changed input"]
    assert result.tool_results[0].result == "found dogs"


@pytest.mark.statement("PO4")
async def test_a_hook_changes_what_comes_out_of_a_tool_a_step_and_the_agent() -> None:
    model = Scripted([calls(("search", {"query": "cats"})), "done"])
    seen = Seen()
    agent = Agent(
        id="a",
        model=model,
        tools=[search],
        on_tool_end=[answering(HookResult.continue_with(modified_output="nothing found"))],
        on_agent_step_end=[
            answering(lambda at: HookResult.continue_with(modified_output={"content": f"step {at.step}"}))
        ],
        on_end=[seen.noting(lambda at: HookResult.continue_with(modified_output={"result": "signed"}))],
    )

    result = await agent.run("hi")

    assert texts(model.requests[1])[-1] == "nothing found"
    assert seen.only("agent.end").current_output["result"] == "step 2"
    assert result.result == "signed"


@pytest.mark.statement("PO5")
async def test_hooks_are_functions_sync_or_async_and_need_no_class() -> None:
    ran = []

    def plain_function(ctx: Any, hook_context: Any) -> HookResult:
        ran.append("plain")
        return CONTINUE

    async def async_function(ctx: Any, hook_context: Any) -> HookResult:
        ran.append("async")
        return CONTINUE

    await Agent(id="a", model=Scripted(["ok"]), on_start=[plain_function, async_function]).run("hi")

    assert ran == ["plain", "async"]


def flow(seen: Seen, done: list[str]) -> Agent:
    """An agent whose model and tool say when they are at work, between the hooks."""

    def answers(text: Any) -> Any:
        def turn(_request: Any) -> Any:
            done.append("model")
            return text

        return turn

    @tool
    def work() -> str:
        done.append("tool")
        return "worked"

    def note(context: HookContext) -> HookResult:
        done.append(str(context.point))
        return CONTINUE

    model = Scripted([answers(calls("work")), answers("done")])
    return Agent(
        id="flow", model=model, tools=[work], **{keyword: [seen.noting(note)] for keyword in SEEDS_KEYWORDS}
    )


THE_FLOW = [
    "agent.start",
    "step.start",
    "model",
    "tool.start",
    "tool",
    "tool.end",
    "step.end",
    "step.start",
    "model",
    "step.end",
    "agent.end",
]


@pytest.mark.statement("PO6")
async def test_on_start_runs_before_execution_begins() -> None:
    done: list[str] = []
    await flow(Seen(), done).run("hi")
    assert done.index("agent.start") == 0
    assert done.count("agent.start") == 1


@pytest.mark.statement("PO7")
async def test_on_end_runs_after_execution_completed() -> None:
    done: list[str] = []
    await flow(Seen(), done).run("hi")
    assert done[-1] == "agent.end"
    assert done.count("agent.end") == 1


@pytest.mark.statement("PO8")
async def test_on_agent_step_start_runs_before_each_step() -> None:
    done: list[str] = []
    seen = Seen()
    await flow(seen, done).run("hi")
    before_models = [done[at - 1] for at, what in enumerate(done) if what == "model"]
    assert before_models == ["step.start", "step.start"]
    assert [context.step for context in seen.at("step.start")] == [1, 2]


@pytest.mark.statement("PO9")
async def test_on_agent_step_end_runs_after_each_step_and_its_tools() -> None:
    done: list[str] = []
    seen = Seen()
    await flow(seen, done).run("hi")
    assert done[done.index("step.end") - 1] == "tool.end"
    assert [context.step for context in seen.at("step.end")] == [1, 2]


@pytest.mark.statement("PO10")
async def test_on_tool_start_runs_before_each_tool() -> None:
    done: list[str] = []
    await flow(Seen(), done).run("hi")
    assert done[done.index("tool") - 1] == "tool.start"
    assert done.count("tool.start") == 1


@pytest.mark.statement("PO11")
async def test_on_tool_end_runs_after_each_tool() -> None:
    done: list[str] = []
    await flow(Seen(), done).run("hi")
    assert done[done.index("tool") + 1] == "tool.end"
    assert done.count("tool.end") == 1


@pytest.mark.statement("PO44")
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_whole_flow_with_hooks(streaming: bool) -> None:
    done: list[str] = []
    agent = flow(Seen(), done)

    result = await (agent.stream("hi").result() if streaming else agent.run("hi"))

    assert done == THE_FLOW
    assert result.result == "done"


# -- defining hooks --------------------------------------------------------------------------------------------


@pytest.mark.statement("PO12")
def test_the_decorator_makes_a_hook_and_refuses_what_cannot_be_one() -> None:
    def good(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    assert hook(good) is good
    assert Agent(id="a", model=Scripted(["ok"]), on_start=[hook(good)]).hooks()[0].name == "good"
    with pytest.raises(TypeError, match="must have exactly 2 parameters"):

        @hook
        def bad(hook_context: Any) -> HookResult:
            return CONTINUE


@pytest.mark.statement("PO14")
def test_the_four_names_are_at_the_root_of_the_package() -> None:
    space = run_block()
    for name in ("hook", "WorkflowContext", "HookContext", "HookResult"):
        assert space[name] is getattr(hookline, name)
        assert name in hookline.__all__


@pytest.mark.statement("PO15")
async def test_log_hook_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    log_hook = run_block(seed.LOG_HOOK)["log_hook"]
    agent = Agent(id="logged", model=Scripted(["ok"]), on_start=[log_hook], on_end=[log_hook])

    result = await agent.run("hello")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Workflow: logged"
    assert lines[1].startswith("Payload: {'input': 'hello'")
    assert lines[2] == "Workflow: logged"
    assert len(lines) == 4
    assert result.result == "ok"


@pytest.mark.statement("PO16")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_the_first_parameter_is_a_workflow_context_with_the_executions_metadata(keyword: str) -> None:
    seen = Seen()
    result = await one_tool_agent(**{keyword: [seen.noting()]}).run("hi", session_id="s1", user_id="u1")

    workflow = seen.workflows[0]
    assert isinstance(workflow, WorkflowContext)
    assert workflow.workflow_id == "one-tool"
    assert workflow.execution_id == result.agent_run_id
    assert (workflow.session_id, workflow.user_id) == ("s1", "u1")
    assert workflow.created_at > 0


@pytest.mark.statement("PO17")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_the_second_parameter_is_a_hook_context_with_the_present_state(keyword: str) -> None:
    seen = Seen()
    await one_tool_agent(**{keyword: [seen.noting()]}).run("hi")

    assert all(isinstance(context, HookContext) for context in seen.contexts)
    for context in seen.contexts:
        assert context.current_payload is not None
        assert (context.current_output is None) == keyword.endswith("start")


@pytest.mark.statement("PO18")
async def test_the_returned_result_and_nothing_else_says_what_to_do() -> None:
    def agent(result: Any) -> Agent:
        return Agent(id="a", model=Scripted(["ok"]), on_start=[answering(result)])

    assert (await agent(HookResult.continue_with()).run("hi")).result == "ok"
    with pytest.raises(HookFailed, match="stop"):
        await agent(HookResult.fail("stop")).run("hi")
    with pytest.raises(HookFailed, match="returned None, an invalid result type"):
        await agent(lambda _: None).run("hi")


# -- the three results -----------------------------------------------------------------------------------------


@pytest.mark.statement("PO19")
async def test_continue_with_nothing_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    simple_hook = run_block(seed.SIMPLE_HOOK)["simple_hook"]
    with_hooks = one_tool_agent(**{keyword: [simple_hook] for keyword in SEEDS_KEYWORDS})
    without = one_tool_agent()

    first, second = await with_hooks.run("hi", run_id="r"), await without.run("hi", run_id="r")

    assert first == second
    assert with_hooks.model.requests == without.model.requests
    assert capsys.readouterr().out == "Hook executed\n" * 8


@pytest.mark.statement("PO20")
async def test_continue_with_a_modified_payload_goes_on_with_the_change() -> None:
    model = Scripted(["ok"])
    change = HookResult.continue_with(modified_payload={"input": "changed"})
    seen = Seen()
    agent = Agent(id="a", model=model, on_start=[answering(change), seen.noting()])

    result = await agent.run("hi")

    assert seen.only("agent.start").current_payload["input"] == "changed"
    assert texts(model.requests[0]) == ["changed"]
    assert result.result == "ok"


@pytest.mark.statement("PO21")
async def test_redact_pii_hook_keeps_an_address_from_the_model_and_from_a_tool() -> None:
    redact = run_block(seed.REDACT_PII_HOOK)["redact_pii_hook"]
    model = Scripted([calls(("send_email", {"to": "bob@example.org"})), "sent"])
    agent = Agent(id="a", model=model, tools=[send_email], on_start=[redact], on_tool_start=[redact])

    result = await agent.run("Write to jane.doe+x@mail.example.com, please")

    assert texts(model.requests[0]) == ["Write to [EMAIL_REDACTED], please"]
    assert result.tool_results[0].result == {"sent": "[EMAIL_REDACTED]"}


@pytest.mark.statement("PO21")
async def test_redact_pii_hook_lets_an_empty_payload_pass() -> None:
    redact = run_block(seed.REDACT_PII_HOOK)["redact_pii_hook"]
    seen = Seen()

    @tool
    def now() -> str:
        return "noon"

    agent = Agent(
        id="a", model=Scripted([calls("now"), "ok"]), tools=[now], on_tool_start=[redact, seen.noting()]
    )

    await agent.run("hi")

    assert seen.only("tool.start").current_payload == {}


@pytest.mark.statement("PO22")
async def test_fail_stops_the_execution() -> None:
    model = Scripted(["never said"])
    agent = Agent(id="a", model=model, on_start=[answering(HookResult.fail("Not today"))])

    with pytest.raises(HookFailed, match="Not today"):
        await agent.run("hi")

    assert model.requests == []


@pytest.mark.statement("PO23")
async def test_validation_hook_refuses_a_tool_call_without_the_field_and_passes_one_with_it() -> None:
    validation_hook = run_block(seed.VALIDATION_HOOK)["validation_hook"]
    ran: list[str] = []

    @tool
    def act(required_field: str = "") -> str:
        ran.append(required_field)
        return "acted"

    def agent(arguments: dict[str, str]) -> Agent:
        model = Scripted([calls(("act", arguments)), "ok"])
        return Agent(id="a", model=model, tools=[act], on_tool_start=[validation_hook])

    with pytest.raises(HookFailed) as caught:
        await agent({}).run("hi")
    assert caught.value.reason == "Missing required field"
    assert ran == []

    assert (await agent({"required_field": "here"}).run("hi")).result == "ok"
    assert ran == ["here"]


# -- using hooks -----------------------------------------------------------------------------------------------


def tracked(seen: Seen, **given: Any) -> Agent:
    log_hook = run_block(seed.LOG_HOOK)["log_hook"]
    names = (
        "validate_input_hook",
        "save_results_hook",
        "log_step_hook",
        "validate_step_hook",
        "log_tool_call_hook",
        "audit_tool_result_hook",
    )
    made = {name: hook(name=name, inline=True)(seen.noting()) for name in names}
    space = run_block(seed.TRACKED_AGENT, log_hook=log_hook, search=search, send_email=send_email, **made)
    agent = space["tracked_agent"]
    for name, value in given.items():
        setattr(agent, name, value)
    return agent


@pytest.mark.statement("PO24", "PO25", "PO27", "PO28", "PO29")
def test_tracked_agent_is_declared_as_written() -> None:
    agent = tracked(Seen())

    assert agent.id == "tracked-agent"
    assert agent.system_prompt == "You are a helpful assistant."
    assert [each.id for each in agent.tools] == ["search", "send_email"]
    standing = [(next(iter(each.points)), each.name) for each in agent.hooks()]
    assert standing == [
        ("agent.start", "log_hook"),
        ("agent.start", "validate_input_hook"),
        ("agent.end", "log_hook"),
        ("agent.end", "save_results_hook"),
        ("step.start", "log_step_hook"),
        ("step.end", "validate_step_hook"),
        ("tool.start", "log_tool_call_hook"),
        ("tool.end", "audit_tool_result_hook"),
    ]


@pytest.mark.statement("PO24", "PO25", "PO27", "PO28", "PO29")
async def test_tracked_agent_runs_its_hooks_on_the_scripted_model(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen()
    model = Scripted([calls(("search", {"query": "x"}), ("send_email", {"to": "me"})), "done"])
    agent = tracked(seen, model=model)

    result = await agent.run("go")

    assert model.requests[0].system == "You are a helpful assistant."
    assert [each.name for each in model.requests[0].tools] == ["search", "send_email"]
    assert [found.result for found in result.tool_results] == ["found x", {"sent": "me"}]
    assert seen.points == [
        "agent.start",
        "step.start",
        "tool.start",
        "tool.start",
        "tool.end",
        "tool.end",
        "step.end",
        "step.start",
        "step.end",
        "agent.end",
    ]
    assert capsys.readouterr().out.count("Workflow: tracked-agent") == 2


@pytest.mark.statement("PO26")
async def test_tracked_agent_talks_to_gpt_4o_through_the_openai_client(openai: Any) -> None:
    provider = openai(calls(("search", {"query": "cats"})), "They purr.")
    seen = Seen()

    async with tracked(seen) as agent:
        result = await agent.run("Why do cats purr?")

    assert result.result == "They purr."
    assert [request.path for request in provider.requests] == ["/v1/chat/completions"] * 2
    assert {request.body["model"] for request in provider.requests} == {"gpt-4o"}
    assert provider.requests[0].headers["authorization"] == "Bearer test"
    first, second = (request.body["messages"] for request in provider.requests)
    assert first == [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Why do cats purr?"},
    ]
    assert second[-1]["content"] == "found cats"
    assert seen.only("tool.end").agent_config == AgentConfig(
        name="tracked-agent",
        provider="openai",
        model="gpt-4o",
        tools=("search", "send_email"),
        system_prompt="You are a helpful assistant.",
    )


@pytest.mark.statement("PO30")
async def test_one_function_may_stand_at_several_points() -> None:
    seen = Seen()
    shared = seen.noting()

    await one_tool_agent(**{keyword: [shared] for keyword in SEEDS_KEYWORDS}).run("hi")

    assert seen.points == [
        "agent.start",
        "step.start",
        "tool.start",
        "tool.end",
        "step.end",
        "step.start",
        "step.end",
        "agent.end",
    ]


# -- the context -----------------------------------------------------------------------------------------------


async def seen_everywhere() -> Seen:
    seen = Seen()
    await one_tool_agent(**seen.everywhere(*SEEDS_KEYWORDS), system_prompt="Be kind.").run(
        "hi", session_id="s-1", user_id="u-1"
    )
    assert len(seen.contexts) == 8
    return seen


@pytest.mark.statement("PO31")
async def test_workflow_id_is_the_agents_id_at_every_point() -> None:
    assert {context.workflow_id for context in (await seen_everywhere()).contexts} == {"one-tool"}


@pytest.mark.statement("PO32")
async def test_user_id_is_filled_at_every_point() -> None:
    assert {context.user_id for context in (await seen_everywhere()).contexts} == {"u-1"}


@pytest.mark.statement("PO33")
async def test_session_id_is_filled_at_every_point() -> None:
    assert {context.session_id for context in (await seen_everywhere()).contexts} == {"s-1"}


@pytest.mark.statement("PO34")
async def test_current_payload_is_what_goes_in_at_each_point() -> None:
    seen = await seen_everywhere()

    assert seen.only("agent.start").current_payload["input"] == "hi"
    first, second = seen.at("step.start")
    assert first.current_payload == {"step": 1, "messages": [{"role": "user", "content": "hi"}]}
    assert [message["role"] for message in second.current_payload["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]
    assert seen.only("tool.start").current_payload == {"query": "cats"}
    assert seen.only("tool.end").current_payload == {"query": "cats"}
    assert seen.only("agent.end").current_payload["input"] == "hi"


@pytest.mark.statement("PO35")
async def test_current_output_is_what_came_out_at_each_end() -> None:
    seen = await seen_everywhere()

    assert [context.current_output for context in seen.contexts if context.point.endswith("start")] == [
        None
    ] * 4
    assert seen.only("tool.end").current_output == "found cats"
    assert [context.current_output["content"] for context in seen.at("step.end")] == [None, "done"]
    assert seen.only("agent.end").current_output["result"] == "done"


@pytest.mark.statement("PO36")
async def test_current_tool_is_the_tool_at_tool_points_and_none_elsewhere() -> None:
    seen = await seen_everywhere()
    assert {context.current_tool for context in seen.contexts if "tool" in context.point} == {"search"}
    assert {context.current_tool for context in seen.contexts if "tool" not in context.point} == {None}


@pytest.mark.statement("PO37")
async def test_agent_config_says_how_the_agent_was_declared_at_every_point() -> None:
    seen = await seen_everywhere()
    expected = AgentConfig(
        name="one-tool", provider="scripted", model="scripted", tools=("search",), system_prompt="Be kind."
    )
    assert [context.agent_config for context in seen.contexts] == [expected] * 8


@pytest.mark.statement("PO38")
async def test_steps_are_the_completed_ones() -> None:
    seen = await seen_everywhere()

    completed = [(context.point, len(context.steps)) for context in seen.contexts]
    assert completed == [
        ("agent.start", 0),
        ("step.start", 0),
        ("tool.start", 0),
        ("tool.end", 0),
        ("step.end", 1),
        ("step.start", 1),
        ("step.end", 2),
        ("agent.end", 2),
    ]
    first, second = seen.only("agent.end").steps
    assert isinstance(first, Step)
    assert (first.step, first.tool_results[0].result) == (1, "found cats")
    assert (second.step, second.content) == (2, "done")


@pytest.mark.statement("PO39")
async def test_inspect_context_hook_works_at_any_point() -> None:
    inspect_context_hook = run_block(seed.INSPECT_CONTEXT_HOOK)["inspect_context_hook"]
    every = {
        name: [inspect_context_hook] for name in inspect.signature(Agent).parameters if name[:3] == "on_"
    }
    assert len(every) == 12
    records: list[Any] = []

    result = await one_tool_agent(**every).run("hi", watch=[records.append])

    assert result.result == "done"
    called = [record for record in records if type(record).__name__ == "Called"]
    assert {record.error for record in called} == {None}
    assert len({record.point for record in called}) == 12


# -- several hooks ---------------------------------------------------------------------------------------------


def multi_hook_agent(*, valid: bool, order: list[str]) -> Agent:
    @hook
    def validate_input_hook(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
        order.append(f"validate {hook_context.current_payload['input']}")
        return CONTINUE if valid else HookResult.fail("invalid input")

    @hook
    def add_metadata_hook(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
        order.append(f"add metadata to {hook_context.current_payload['input']}")
        return HookResult.continue_with(modified_payload={"metadata": {"checked": True}})

    redacting = run_block(seed.REDACT_PII_HOOK)["redact_pii_hook"]

    @hook
    def redact_pii_hook(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
        order.append("redact")
        return redacting(ctx, hook_context)

    return run_block(
        "from hookline import Agent\n",
        seed.MULTI_HOOK_AGENT,
        validate_input_hook=validate_input_hook,
        redact_pii_hook=redact_pii_hook,
        add_metadata_hook=add_metadata_hook,
    )["agent"]


@pytest.mark.statement("PO40", "PO41", "PO43")
async def test_multi_hook_agent_runs_its_hooks_in_order_each_on_what_the_one_before_left(openai: Any) -> None:
    provider = openai("Hello.")
    order: list[str] = []

    async with multi_hook_agent(valid=True, order=order) as agent:
        result = await agent.run("I am jane@example.com")

    assert order == [
        "validate I am jane@example.com",
        "redact",
        "add metadata to I am [EMAIL_REDACTED]",
    ]
    assert result.result == "Hello."
    # No system prompt and no tools: neither is sent.
    (request,) = provider.requests
    assert request.body["messages"] == [{"role": "user", "content": "I am [EMAIL_REDACTED]"}]
    assert "tools" not in request.body


@pytest.mark.statement("PO42")
async def test_if_the_first_hook_fails_the_others_never_run_and_execution_stops(openai: Any) -> None:
    provider = openai("never said")
    order: list[str] = []

    async with multi_hook_agent(valid=False, order=order) as agent:
        with pytest.raises(HookFailed, match="invalid input"):
            await agent.run("hello")

    assert order == ["validate hello"]
    assert provider.requests == []
