"""A run of many steps must not cost more for each step than a short one: in bytes, in memory, in work."""

import json
import sys
import tracemalloc

import pytest

from hookline import Agent, HookResult, WorkflowContext, hook, tool
from hookline.agent.models import Reply
from hookline.agent.stop import MaxStepsConfig, max_steps
from hookline.engine.context import ToolCall
from hookline.engine.plain import plain
from hookline.engine.point import Scope
from hookline.engine.record import Begun, Called
from hookline.journal.masking import Mask
from hookline.journal.sqlite import SqliteJournal
from tests.command import hookline  # noqa: F401

SHORT, LONG = 40, 400
PATIENT = [max_steps(MaxStepsConfig(count=10**6))]


class Steps:
    """A model that calls a tool in so many steps, and then answers. It keeps its last request."""

    provider, name = "scripted", "steps"

    def __init__(self, steps):
        self.left = steps
        self.last = ()

    async def stream(self, request):
        self.last = request.messages
        self.left -= 1
        if self.left < 0:
            yield Reply(text="done")
        else:
            call = ToolCall(id=f"call{self.left}", name="look", arguments={"n": self.left})
            yield Reply(text=f"I look {'again ' * 20}{self.left}", tool_calls=(call,))

    async def close(self):
        pass


@tool
async def look(ctx: WorkflowContext, n: int) -> str:
    return f"line {n} " + "of the file " * 20


@hook(inline=True)
def reads_the_newest(ctx, context):
    assert context.current_payload["messages"][-1]["content"]
    return HookResult.continue_with()


@hook(inline=True)
def changes_a_setting(ctx, context):
    context.current_payload["messages"][-1]["content"] = "changed in place"
    return HookResult.continue_with(modified_payload={"temperature": 0.5})


@hook(inline=True)
def adds_a_message(ctx, context):
    messages = context.current_payload["messages"]
    messages.append({"role": "user", "content": "be kind"})
    return HookResult.continue_with(modified_payload={"messages": messages})


@hook(inline=True)
def gives_back_a_list_of_its_own(ctx, context):
    kind = {"role": "user", "content": "be kind"}
    return HookResult.continue_with(
        modified_payload={"messages": [*context.current_payload["messages"], kind]}
    )


async def run(steps, path, *hooks):
    model = Steps(steps)
    agent = Agent(id="long", model=model, tools=[look], on_model_start=list(hooks), stop_conditions=PATIENT)
    with SqliteJournal(path) as journal:
        result = await agent.run("go", journal=journal)
        assert result.total_steps == steps + 1
    return model.last


LINEAR = [(), (reads_the_newest,), (changes_a_setting,), (adds_a_message,)]
names = [hooks[0].__name__ if hooks else "no_hook" for hooks in LINEAR]


@pytest.mark.parametrize(
    "hooks",
    [*LINEAR, (gives_back_a_list_of_its_own,)],
    ids=[*names, "gives_back_a_list_of_its_own"],
)
async def test_a_step_stores_no_message_again(hooks, tmp_path):
    for steps in (SHORT, LONG):
        await run(steps, tmp_path / f"{steps}.db", *hooks)
    short, long = ((tmp_path / f"{steps}.db").stat().st_size for steps in (SHORT, LONG))
    assert long <= 10 * short


@pytest.mark.parametrize(
    "hooks",
    [*LINEAR, (gives_back_a_list_of_its_own,)],
    ids=[*names, "gives_back_a_list_of_its_own"],
)
async def test_a_step_masks_no_message_again(hooks, tmp_path, monkeypatch):
    counted = []
    suspects = Mask.suspects
    monkeypatch.setattr(
        Mask, "suspects", lambda mask, text: counted.append(len(text)) or suspects(mask, text)
    )
    masked = []
    for steps in (SHORT, LONG):
        counted.clear()
        await run(steps, tmp_path / f"{steps}.db", *hooks)
        masked.append(sum(counted))
    assert 0 < masked[1] <= 10.5 * masked[0]


@pytest.mark.parametrize("hooks", LINEAR, ids=names)
async def test_a_step_calls_no_more_functions_than_the_one_before(hooks, tmp_path):
    await run(2, tmp_path / "warm.db", *hooks)
    calls = []

    def count(frame, event, _argument):
        nonlocal made
        made += event in ("call", "c_call")

    for steps in (SHORT, LONG):
        made = 0
        sys.setprofile(count)
        try:
            await run(steps, tmp_path / f"{steps}.db", *hooks)
        finally:
            sys.setprofile(None)
        calls.append(made)
    assert calls[1] <= 10.5 * calls[0]


async def test_a_long_run_needs_memory_in_proportion(tmp_path):
    await run(2, tmp_path / "warm.db", adds_a_message)
    needed = []
    for steps in (SHORT, LONG):
        tracemalloc.start()
        try:
            await run(steps, tmp_path / f"{steps}.db", adds_a_message)
            needed.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert needed[1] <= 10 * needed[0]


async def test_nothing_of_a_long_run_is_lost(hookline):  # noqa: F811
    path = hookline.folder / "home" / "journal.db"
    asked = await run(LONG, path, adds_a_message)

    with SqliteJournal(path) as journal:
        records = journal.records(journal.runs()[0].run_id)
    models = [each for each in records if isinstance(each, Begun) and each.scope is Scope.MODEL]
    called = [each for each in records if isinstance(each, Called)]

    assert len(models) == len(called) == LONG + 1
    assert [*models[-1].payload["messages"], called[-1].changed["messages"][-1]] == plain(asked)
    for number, model in enumerate(models):
        assert len(model.payload["messages"]) == 1 + 2 * number
        assert model.payload["messages"] == plain(asked)[: 1 + 2 * number]
    shown = [json.loads(line) for line in hookline("logs", "last", "--json").stdout.splitlines()]
    assert shown[-1]["given"]["messages"] == plain(asked)[:-1]
    assert shown[-1]["changed"]["messages"] == plain(asked)
    told = [json.loads(line) for line in hookline("runs", "last", "--json").stdout.splitlines()]
    begun = [each for each in told if each["record"] == "begun" and each["scope"] == "model"]
    assert begun[-1]["payload"]["messages"] == plain(asked)[:-1]


async def test_what_a_hook_changes_in_its_messages_reaches_nobody_else(tmp_path):
    seen = []

    @hook(inline=True)
    def spoils(ctx, context):
        messages = context.current_payload["messages"]
        messages[0]["content"] = "spoiled"
        messages.insert(0, {"role": "user", "content": "mine"})
        for each in messages:
            each["role"] = "nobody"
        return HookResult.continue_with()

    @hook(inline=True)
    def looks(ctx, context):
        seen.append(json.dumps(context.current_payload["messages"]))
        return HookResult.continue_with()

    asked = await run(3, tmp_path / "journal.db", spoils, looks)

    assert [json.loads(each) for each in seen] == [plain(asked)[: 1 + 2 * number] for number in range(4)]


async def test_a_hook_may_change_every_message(tmp_path):
    @hook(inline=True)
    def shouts(ctx, context):
        messages = context.current_payload["messages"]
        for each in messages:
            each["content"] = (each["content"] or "").upper()
        del messages[1:3]
        return HookResult.continue_with(modified_payload={"messages": messages})

    asked = await run(3, tmp_path / "journal.db", shouts)

    assert len(asked) == 1 + 2 * 3 - 2
    assert all(each["content"] == each["content"].upper() for each in asked)
    with SqliteJournal(tmp_path / "journal.db") as journal:
        records = journal.records(journal.runs()[0].run_id)
    (*_, last) = [each for each in records if isinstance(each, Called)]
    assert last.changed["messages"] == plain(asked)
    assert last.given["messages"] != plain(asked)
