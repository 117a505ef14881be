"""Every hook has a context of its own, whoever keeps it and whenever it is looked into."""

import asyncio

import pytest

from hookline.engine.hook import hook
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point
from hookline.engine.result import HookResult
from hookline.handlers.python import python_hook
from tests.engine.builders import context, fired, noting, saying, standing

GO_ON = HookResult.continue_with()


@standing()
async def writes(ctx, hook_context):
    hook_context.current_payload["a"] = 2
    return GO_ON


def keeping(keep):
    """A hook that does not look into its context and keeps it, for later."""

    @standing()
    async def keeps(ctx, hook_context):
        keep(hook_context)
        return GO_ON

    return keeps


KEPT = {
    "itself": lambda seen: seen,
    "in a closure": lambda seen: lambda: seen,
    "by a method": lambda seen: seen.to_dict,
    "in another thing": lambda seen: {"context": [seen]},
}


@pytest.mark.rule("design 1.5")
@pytest.mark.parametrize("keeps_it", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("between", [(), (saying(GO_ON),)], ids=["next to it", "with one between"])
async def test_a_hook_that_kept_its_context_does_not_see_what_another_writes_into_its_own(keeps_it, between):
    contexts, kept = [], []

    def keep(seen):
        contexts.append(id(seen))
        kept.append(keeps_it(seen))

    await fired(keeping(keep), *between, keeping(keep), writes, payload={"a": 1})
    assert len(set(contexts)) == 2


@pytest.mark.rule("design 1.5")
async def test_what_was_kept_is_as_it_was_given():
    kept = []
    await fired(keeping(kept.append), writes, keeping(kept.append), writes, payload={"a": 1})
    assert [seen.current_payload for seen in kept] == [{"a": 1}, {"a": 1}]


@pytest.mark.rule("design 1.5")
async def test_one_who_looks_only_later_sees_what_it_was_given():
    looked, let_go, tasks = [], asyncio.Event(), []

    async def later(seen):
        await let_go.wait()
        looked.append(seen.current_payload)

    def keep(seen):
        tasks.append(asyncio.ensure_future(later(seen)))

    change = saying(HookResult.continue_with(modified_payload={"a": 3}))
    await fired(keeping(keep), change, keeping(keep), writes, payload={"a": 1})
    let_go.set()
    await asyncio.wait(tasks)
    assert looked == [{"a": 1}, {"a": 3}]


@pytest.mark.rule("design 1.5")
async def test_who_fires_a_point_and_keeps_the_context_does_not_see_what_a_hook_writes_into_its_own():
    given = context("tool.start", payload={"a": 1})
    await Pipeline((writes,)).fire(given)
    assert given.current_payload == {"a": 1}


@pytest.mark.rule("design 1.5")
async def test_a_hook_does_not_see_what_was_written_into_the_context_before_the_point_was_fired():
    def written_into():
        given = context("tool.start", payload={"a": 1})
        given.current_payload["a"] = 2
        return given

    seen = []
    await Pipeline((noting(seen),)).fire(written_into())
    assert seen == [{"a": 1}]


@pytest.mark.rule("design 1.5")
async def test_a_context_given_away_is_not_shared_by_two_points():
    kept = []
    pipeline = Pipeline((keeping(kept.append),))
    for number in range(3):
        await pipeline.fire(context("tool.start", payload={"number": number}))
    assert [seen.current_payload["number"] for seen in kept] == [0, 1, 2]


@pytest.mark.rule("design 1.5")
async def test_a_sync_hook_in_its_thread_keeps_its_own_context_too():
    kept = []

    @hook(on="tool.start")
    def keeps(ctx, hook_context):
        kept.append(hook_context)
        return GO_ON

    live = python_hook(keeps, [Point.TOOL_START])
    await fired(live, writes, live, payload={"a": 1})
    assert [seen.current_payload for seen in kept] == [{"a": 1}, {"a": 1}]
