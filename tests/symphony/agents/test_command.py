"""Agents of the command line, and the built-in one: real processes in a folder, which leave none behind."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from hookline.engine.context import Usage
from hookline.errors import UsageError
from hookline.symphony.agents import AgentPlace, TurnFailed
from hookline.symphony.agents.builtin import BuiltinSession
from hookline.symphony.agents.command import CommandSession
from hookline.symphony.settings import AgentSettings
from tests.symphony.scenes import PATH, until


class Desk:
    """A place to work, and what was told there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = []
        self.place = AgentPlace(
            workspace=str(folder),
            env={"PATH": f"{os.path.dirname(sys.executable)}:{PATH}", "MARK": "1"},
            tell=self.told.append,
        )

    @property
    def kinds(self) -> list[str]:
        return [each.kind for each in self.told]

    def command(self, *argv: str, silence: float = 3600.0) -> CommandSession:
        return CommandSession(self.place, argv=argv, silence=silence)

    def builtin(self, model: str) -> BuiltinSession:
        return BuiltinSession(self.place, settings=AgentSettings(model=model), silence=3600.0)

    async def said(self, *argv: str, prompts=("hello",), **rest) -> list[str]:
        session = self.command(*argv, **rest)
        try:
            await session.open()
            return [await session.turn(prompt) for prompt in prompts]
        finally:
            await session.close()

    async def fault(self, *argv: str, prompt="hello", **rest) -> TurnFailed:
        with pytest.raises(TurnFailed) as told:
            await self.said(*argv, prompts=(prompt,), **rest)
        return told.value

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def test_the_prompt_is_on_standard_input(desk):
    assert await desk.said("cat") == ["hello"]
    assert desk.kinds[0] == "session_started"
    assert desk.kinds[-1] == "turn_completed"


@pytest.mark.parametrize("prompt", ["two words", "$(touch pwned); `touch pwned`", "a\nb", "-n", "é🐛", "'\""])
async def test_the_prompt_is_one_argument_and_no_shell_reads_it(desk, prompt):
    show = "import sys, json; print(json.dumps(sys.argv[1:])); print(repr(sys.stdin.read()))"
    (said,) = await desk.said("python", "-c", show, "-p", "{prompt}", "--x={prompt}", prompts=(prompt,))
    argv, stdin = said.splitlines()
    assert json.loads(argv) == ["-p", prompt, f"--x={prompt}"]
    assert stdin == "''"
    assert not (desk.folder / "pwned").exists()


async def test_it_works_in_the_workspace_with_the_environment_of_the_place_alone(desk, monkeypatch):
    monkeypatch.setenv("FROM_THE_SERVICE", "secret")
    (said,) = await desk.said("sh", "-c", "pwd; echo $MARK; echo ${FROM_THE_SERVICE-none}")
    assert said.splitlines() == [str(desk.folder), "1", "none"]


@pytest.mark.rule("O16")
async def test_a_later_turn_is_a_new_process_that_is_told_the_prompt_again(desk):
    first, second = await desk.said("sh", "-c", "cat; echo; echo $$ >> pids", prompts=("prompt", "go on"))
    assert (first, second) == ("prompt", "prompt\n\ngo on")
    assert len(set(desk.read("pids").split())) == 2


async def test_a_prompt_too_long_for_an_argument_is_told_and_goes_by_standard_input(desk):
    long = "x" * 200_000
    assert "too many for an argument" in str(await desk.fault("echo", "{prompt}", prompt=long))
    assert await desk.said("wc", "-c", prompts=(long,)) == ["200000"]


@pytest.mark.rule("O21")
async def test_a_program_that_is_not_there_is_told_before_anything_starts(desk):
    error = await desk.fault("no-such-agent", "-p")
    assert (error.kind, desk.kinds) == ("codex_not_found", ["startup_failed"])
    assert "is it installed and on PATH?" in str(error)


@pytest.mark.rule("O21")
@pytest.mark.parametrize(
    ("script", "said"), [("echo oh no >&2; exit 3", "exited with 3: oh no"), ("kill -9 $$", "SIGKILL")]
)
async def test_an_agent_that_dies_has_failed_and_its_last_lines_say_why(desk, script, said):
    error = await desk.fault("sh", "-c", script)
    assert (error.kind, desk.kinds[-1]) == ("port_exit", "turn_ended_with_error")
    assert said in str(error)


async def test_one_that_dies_in_the_middle_of_a_line_is_told_as_dead(desk):
    error = await desk.fault("sh", "-c", 'printf \'{"type": "resu\'; exit 1')
    assert error.kind == "port_exit"


@pytest.mark.rule("O21")
async def test_silence_past_the_limit_ends_it_with_all_that_it_started(desk):
    error = await desk.fault(
        "sh", "-c", "sleep 300 & echo $! > pids; echo $$ >> pids; setsid sleep 300 & wait", silence=3.0
    )
    assert (error.kind, str(error)) == ("turn_timeout", "the agent sent nothing for 3 s")
    assert all(gone(int(pid)) for pid in desk.read("pids").split())


async def test_one_that_speaks_now_and_then_is_not_silent(desk):
    script = "for i in $(seq 22); do echo $i; sleep 0.25; done"
    (said,) = await desk.said("sh", "-c", script, silence=5.0)
    assert said.endswith("22")
    assert "notification" in desk.kinds


async def test_a_flood_of_long_lines_is_read_and_mostly_forgotten(desk):
    flood = "import sys\nfor _ in range(3): sys.stdout.write('{' + 'x' * 12_000_000 + '\\n')\nprint('end')"
    (said,) = await desk.said("python", "-c", flood)
    assert said.endswith("end")
    assert len(said) < 1_000_000


async def test_cancelled_it_is_ended_whole_before_the_cancel_comes_out(desk):
    session = desk.command("sh", "-c", "sleep 300 & echo $! > pids; wait")
    await session.open()
    task = asyncio.ensure_future(session.turn("x"))
    await until(lambda: (desk.folder / "pids").exists() and desk.read("pids").endswith("\n"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(int(desk.read("pids")))
    await session.close()


async def test_close_ends_a_turn_that_is_under_way(desk):
    session = desk.command("sh", "-c", "echo $$ > pids; sleep 300")
    await session.open()
    task = asyncio.ensure_future(session.turn("x"))
    await until(lambda: (desk.folder / "pids").exists() and desk.read("pids").endswith("\n"))
    await session.close()
    with pytest.raises(TurnFailed) as told:
        await task
    assert told.value.kind == "turn_cancelled"
    assert gone(int(desk.read("pids")))


async def test_one_that_ignores_a_friendly_end_is_killed(desk):
    script = "trap '' TERM INT; echo $$ > pids; while :; do sleep 1; done"
    session = desk.command("sh", "-c", script)
    await session.open()
    task = asyncio.ensure_future(session.turn("x"))
    await until(lambda: (desk.folder / "pids").exists() and desk.read("pids").endswith("\n"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(int(desk.read("pids")))
    await session.close()


CLAUDE = {
    "type": "result",
    "result": "all done",
    "is_error": False,
    "usage": {"input_tokens": 7, "output_tokens": 3},
}
CODEX = [
    {"type": "item.completed", "item": {"type": "agent_message", "text": "all done"}},
    {"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 3}},
]


@pytest.mark.rule("O26")
@pytest.mark.parametrize("lines", [[CLAUDE], CODEX], ids=["claude", "codex"])
async def test_answer_and_tokens_are_read_from_lines_of_json_and_add_up(desk, lines):
    (desk.folder / "lines").write_text("noise\n" + "\n".join(json.dumps(line) for line in lines))
    assert await desk.said("cat", "lines", prompts=("a", "b")) == ["all done", "all done"]
    assert desk.told[-1].tokens == Usage(input_tokens=14, output_tokens=6, total_tokens=20)


async def test_an_agent_that_says_it_failed_has_failed_though_it_exits_well(desk):
    (desk.folder / "lines").write_text(json.dumps({**CLAUDE, "is_error": True, "result": "no credit"}))
    error = await desk.fault("cat", "lines")
    assert error.kind == "turn_failed"
    assert "no credit" in str(error)


def script(folder: Path, *turns) -> str:
    file = folder / "script.yaml"
    file.write_text(json.dumps(list(turns)))
    return f"scripted/{file}"


def bash(command: str) -> dict:
    return {
        "tools": [{"name": "bash", "arguments": {"command": command}}],
        "usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
    }


async def test_the_built_in_agent_works_in_the_workspace_without_our_environment(desk, monkeypatch):
    monkeypatch.setenv("FROM_THE_SERVICE", "secret")
    model = script(desk.folder, bash("pwd > seen; env >> seen"), "done")
    session = desk.builtin(model)
    await session.open()
    try:
        assert await session.turn("go") == "done"
    finally:
        await session.close()
    assert desk.read("seen").splitlines()[0] == str(desk.folder)
    assert "FROM_THE_SERVICE" not in desk.read("seen")
    assert desk.kinds[0] == "session_started"
    assert "notification" in desk.kinds
    assert [each.tokens.input_tokens for each in desk.told if each.tokens] == [5]


async def test_the_built_in_agent_keeps_its_conversation_from_turn_to_turn(desk):
    model = script(desk.folder, "first", {"text": "second", "expect": "go on"})
    session = desk.builtin(model)
    await session.open()
    try:
        assert [await session.turn("prompt"), await session.turn("go on")] == ["first", "second"]
    finally:
        await session.close()


async def test_a_model_that_fails_is_a_failed_turn(desk):
    session = desk.builtin(script(desk.folder, {"error": "overloaded"}))
    await session.open()
    try:
        with pytest.raises(TurnFailed, match="overloaded") as told:
            await session.turn("go")
    finally:
        await session.close()
    assert told.value.kind == "turn_failed"


async def test_a_built_in_agent_that_is_cancelled_leaves_no_process(desk):
    model = script(desk.folder, bash("echo $$ > pids; sleep 300"), "done")
    session = desk.builtin(model)
    await session.open()
    task = asyncio.ensure_future(session.turn("go"))
    await until(lambda: (desk.folder / "pids").exists() and desk.read("pids").endswith("\n"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.close()
    assert gone(int(desk.read("pids")))


async def test_a_model_that_is_not_known_is_told_when_it_is_opened(desk):
    session = desk.builtin("nobody/x")
    with pytest.raises(UsageError, match="nobody"):
        await session.open()
    await session.close()
    assert desk.kinds == ["startup_failed"]
