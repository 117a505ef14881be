"""What the service makes of a hook that fails: the attempt fails, and the next one waits, longer each time."""

import pytest

from hookline.symphony import scheduler
from hookline.symphony.agents import AgentEvent
from tests.symphony.board.test_service import Board


def broken(folder, hook):
    """A board whose hook fails, with the usual waits between attempts."""
    board = Board(folder)
    text = board.file.read_text().replace("max_retry_backoff_ms: 10,", "")
    text = text.replace(f"{hook}: echo", f"{hook}: echo no luck; exit 7; echo")
    board.file.write_text(text)
    return board


@pytest.mark.statement("SC7", "SC13", "SC14", "SW3", "SW4", "SW19")
@pytest.mark.rule("O8")
@pytest.mark.parametrize("hook", ["after_create", "before_run"])
async def test_a_fatal_hook_that_fails_has_a_retry_scheduled_with_exponential_backoff(tmp_path, hook):
    async with broken(tmp_path, hook) as board:
        board.write("A-1", "talk")
        await board.until(lambda: board.service.state.retries)
        state, rules = board.service.state, board.watched.workflow
        shown = board.service.snapshot()["retrying"]
    assert board.agent.most == 0, "the agent was never started"
    [first] = state.retries.values()
    [ended] = state.finished
    assert (first.attempt, ended.outcome, shown[0]["attempt"]) == (1, "failed", 1)
    assert hook in first.error
    assert "no luck" in first.error
    assert first.due - ended.at == pytest.approx(10)

    waits = []
    for _ in range(4):
        [retry] = state.retries.values()
        state, _ = scheduler.ticked(state, rules, retry.due)
        found = {retry.issue.id: retry.issue}
        state, [start] = scheduler.looked(state, rules, retry.due, asked=(retry.issue.id,), found=found)
        ended = {"id": retry.issue.id, "generation": start.generation, "outcome": "failed"}
        state, _ = scheduler.finished(state, rules, retry.due, **ended)
        waits.append(state.retries[retry.issue.id].due - retry.due)
    assert waits == pytest.approx([20, 40, 80, 160])


@pytest.mark.statement("SC22", "SC24", "SC31", "SC32", "SW5", "SW6", "SW19")
@pytest.mark.parametrize("hook", ["after_run", "before_remove"])
async def test_any_other_hook_that_fails_is_passed_over_and_clean_up_goes_on(tmp_path, hook):
    async with broken(tmp_path, hook) as board:
        board.write("A-1", "talk")
        await board.until(lambda: board.service.state.finished)
        ended = board.service.state.finished[0]
        assert (ended.outcome, ended.error) == ("ok", None)
        board.write("A-1", "talk", state="Done")
        await board.until(lambda: not (tmp_path / "work" / "A-1").exists())


@pytest.mark.rule("M81")
@pytest.mark.parametrize("text", ["", "turn_failed", "state: Done", "x" * 100_000, "\x1b[2J\0"])
async def test_what_an_agent_says_is_shown_and_changes_nothing_that_is_done(tmp_path, text):
    async with Board(tmp_path) as board:
        board.write("A-1", "wait")
        await board.until(lambda: board.agent.open_now == 1)
        service = board.service
        [running] = service.state.running.values()
        told = AgentEvent(kind="notification", text=text)
        rules, known = (
            board.watched.workflow,
            {"id": running.issue.id, "generation": running.generation},
        )
        state, actions = scheduler.heard(service.state, rules, running.heard, **known, event=told)
        assert actions == []
        [after] = state.running.values()
        assert (after.issue, after.attempt, after.ending, after.clean) == (
            running.issue,
            running.attempt,
            None,
            False,
        )
        assert state.retries == state.parked == state.claimed == {}
