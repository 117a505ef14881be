"""The model that answers from a script, and the scripts themselves."""

import asyncio
import json

import pytest

from hookline.agent.models import Model, Request
from hookline.agent.models.script import Scripted
from hookline.engine.context import ToolCall, Usage
from hookline.errors import FileError, ModelFailed, UsageError


async def test_the_turns_come_in_order(ask):
    model = Scripted(["One.", {"text": "Two.", "usage": {"input_tokens": 3, "output_tokens": 4}}])
    assert isinstance(model, Model)
    deltas, reply = await ask(model)
    assert (deltas, reply.text, reply.stop_reason, reply.usage) == (["One."], "One.", "stop", Usage())
    _, reply = await ask(model)
    assert (reply.text, reply.usage) == ("Two.", Usage(input_tokens=3, output_tokens=4, total_tokens=7))
    await model.close()


async def test_a_stream_comes_in_its_pieces(ask):
    deltas, reply = await ask(Scripted([{"stream": ["a", "b", "c"]}]))
    assert (deltas, reply.text) == (["a", "b", "c"], "abc")


async def test_tool_calls_are_numbered_through(ask):
    model = Scripted(
        [
            {"tools": [{"name": "f", "arguments": {"n": 1}}, {"name": "g"}]},
            {"text": "More.", "tools": [{"name": "f", "arguments": '{"n": 2', "id": "mine"}, {"name": "f"}]},
        ]
    )
    _, first = await ask(model)
    assert first.tool_calls == (
        ToolCall(id="call_1", name="f", arguments={"n": 1}, raw_arguments='{"n": 1}'),
        ToolCall(id="call_2", name="g", arguments={}, raw_arguments="{}"),
    )
    assert (first.text, first.stop_reason) == (None, "tool_calls")
    _, second = await ask(model)
    assert [(call.id, call.arguments, call.raw_arguments) for call in second.tool_calls] == [
        ("mine", None, '{"n": 2'),
        ("call_3", {}, "{}"),
    ]


async def test_a_function_is_given_the_request(ask):
    model = Scripted([lambda request: f"You said {request.messages[-1]['content']!r}."])
    _, reply = await ask(model, {"role": "user", "content": "this"})
    assert reply.text == "You said 'this'."


async def test_it_keeps_what_it_was_asked(ask):
    model = Scripted(["One."])
    await ask(model, {"role": "user", "content": "this"}, system="Be brief.")
    [request] = model.requests
    assert (request.system, request.messages[0]["content"]) == ("Be brief.", "this")


async def test_a_script_that_ran_out_is_told_with_its_length(ask):
    model = Scripted(["One.", "Two."])
    await ask(model)
    await ask(model)
    with pytest.raises(ModelFailed, match="scripted model 'scripted': the script ran out after 2 turns"):
        await ask(model)


async def test_a_script_may_begin_again(ask):
    model = Scripted(["One.", "Two."], repeat=True)
    assert [(await ask(model))[1].text for _ in range(5)] == ["One.", "Two.", "One.", "Two.", "One."]


async def test_an_empty_script_has_nothing_to_repeat(ask):
    with pytest.raises(ModelFailed, match="ran out after 0 turns"):
        await ask(Scripted([], repeat=True))


async def test_an_error_comes_after_what_was_said():
    parts = Scripted([{"stream": ["so ", "far"], "error": "no further"}]).stream(Request(messages=()))
    assert [(await anext(parts)).text, (await anext(parts)).text] == ["so ", "far"]
    with pytest.raises(ModelFailed, match="no further"):
        await anext(parts)


async def test_an_answer_of_nothing_is_a_failure_as_it_is_with_a_provider(ask):
    with pytest.raises(ModelFailed, match="neither text nor a tool call"):
        await ask(Scripted([""]))


async def test_a_message_that_was_not_expected_is_told(ask):
    turn = {"text": "Good.", "expect": r"sunny|dry"}
    _, reply = await ask(Scripted([turn]), {"role": "tool", "tool_call_id": "a", "content": "it is dry"})
    assert reply.text == "Good."
    with pytest.raises(
        ModelFailed, match=r"expected the last message to match 'sunny\|dry', but it is 'rain'"
    ):
        await ask(Scripted([turn]), {"role": "tool", "tool_call_id": "a", "content": "rain"})


async def test_a_delay_holds_up_nobody_else(ask):
    slow = asyncio.create_task(ask(Scripted([{"text": "Slow.", "delay": 60}])))
    await asyncio.sleep(0)
    assert (await ask(Scripted(["Quick."])))[1].text == "Quick."
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_many_at_once_get_one_turn_each(ask):
    model = Scripted([str(number) for number in range(100)])
    replies = await asyncio.gather(*(ask(model) for _ in range(100)))
    assert sorted(int(reply.text) for _, reply in replies) == list(range(100))


WRONG = {
    "no turn": (42, "is 42; a turn is a text or a mapping"),
    "a typo": ({"txt": "x"}, "txt: unknown key; did you mean text?"),
    "a strange key": ({"colour": "x"}, "colour: unknown key; known: text, stream"),
    "nothing": ({"delay": 1}, "a turn needs one of text, stream, tools, error"),
    "text twice": ({"text": "a", "stream": ["a"]}, "either text or stream"),
    "text": ({"text": 1}, "text: is 1; give a text"),
    "stream": ({"stream": "abc"}, "stream: is 'abc'; give a list of texts"),
    "piece": ({"stream": ("a", 1)}, "stream[1]: is 1; give a text"),
    "tools": ({"tools": {"name": "f"}}, "tools: is not a list; begin each with `- name: TOOL`"),
    "call": ({"tools": ("f",)}, "tools[0]: is 'f'; it must be a mapping"),
    "call's key": ({"tools": [{"name": "f", "args": {}}]}, "tools[0].args: unknown key"),
    "no name": ({"tools": [{"arguments": {}}]}, "tools[0]: name is missing; it names the tool"),
    "arguments": ({"tools": [{"name": "f", "arguments": [1]}]}, "tools[0].arguments: is [1]; give a mapping"),
    "no json": (
        {"tools": [{"name": "f", "arguments": {"x": {1}}}]},
        "tools[0].arguments: cannot be written as JSON",
    ),
    "name": ({"tools": [{"name": 1}]}, "tools[0].name: is 1; it names the tool"),
    "id": ({"tools": [{"name": "f", "id": 1}]}, "tools[0].id: is 1; give a text"),
    "usage": ({"text": "a", "usage": 3}, "usage: is 3; it must be a mapping"),
    "usage's key": ({"text": "a", "usage": {"tokens": 3}}, "usage.tokens: unknown key"),
    "usage's number": (
        {"text": "a", "usage": {"input_tokens": -1}},
        "usage.input_tokens: is -1; give a whole number",
    ),
    "delay": ({"text": "a", "delay": "1s"}, "delay: is '1s'; give a number"),
    "no delay": ({"text": "a", "delay": -1}, "delay: is -1; give seconds"),
    "expect": ({"text": "a", "expect": "("}, "expect: '(' is not a regular expression"),
}


@pytest.mark.parametrize(("turn", "said"), WRONG.values(), ids=WRONG)
async def test_a_wrong_turn_is_told(turn, said, ask):
    with pytest.raises(UsageError) as failure:
        Scripted(["fine", turn])
    assert str(failure.value).startswith("turn 2: ")
    assert said in str(failure.value)
    with pytest.raises(UsageError, match="turn 1: "):
        await ask(Scripted([lambda _: turn]))


def test_a_script_that_is_one_text_is_told():
    with pytest.raises(UsageError, match="a script is a list of turns, not str"):
        Scripted("Hello.")


TURNS = ["One.", {"text": "Two.", "tools": [{"name": "f", "arguments": {"n": 1}}]}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", json.dumps(TURNS)),
        ("s.yaml", "- One.\n- text: Two.\n  tools:\n  - {name: f, arguments: {n: 1}}\n"),
        ("s.yml", json.dumps({"turns": TURNS, "repeat": False})),
    ],
)
async def test_a_script_in_a_file(name, text, tmp_path, ask):
    file = tmp_path / name
    file.write_text(text)
    model = Scripted.of_file(file)
    assert model.name == str(file)
    assert (await ask(model))[1].text == "One."
    assert (await ask(model))[1].tool_calls[0].arguments == {"n": 1}


async def test_a_date_in_a_file_is_a_text(tmp_path, ask):
    file = tmp_path / "s.yaml"
    file.write_text("- tools: [{name: f, arguments: {d: 2024-01-01}}]\n")
    assert (await ask(Scripted.of_file(file)))[1].tool_calls[0].arguments == {"d": "2024-01-01"}


async def test_a_file_may_say_that_it_begins_again(tmp_path, ask):
    file = tmp_path / "s.yaml"
    file.write_text("repeat: true\nturns: [One.]\n")
    model = Scripted.of_file(file)
    assert [(await ask(model))[1].text for _ in range(3)] == ["One."] * 3


WRONG_FILES = {
    "yaml": ("s.yaml", "- One.\n- {text: [\n", "s.yaml:2: this is not YAML: "),
    "json": ("s.json", '["One.",\n "Two"\n "Three"]', "s.json:3: this is not JSON: "),
    "a turn": (
        "s.yaml",
        "- One.\n\n- txt: Two.\n",
        "s.yaml:3: [1].txt: unknown key; did you mean text?",
    ),
    "a call further in": (
        "s.yaml",
        "- One.\n- text: Two.\n  tools:\n  - name: f\n    args: {}\n",
        "s.yaml:5: [1].tools[0].args: unknown key",
    ),
    "a turn in json": ("s.json", '["One.",\n\t{"txt": 2}]', "s.json:2: [1].txt: unknown key"),
    "a turn further in": (
        "s.yaml",
        "repeat: true\nturns:\n- One.\n- 2\n",
        "s.yaml:4: turns[1]: is 2; a turn is a text",
    ),
    "no list": ("s.yaml", "turns: One.\n", "s.yaml:1: turns: is 'One.'; a script is a list of turns"),
    "empty": ("s.yaml", "", "s.yaml:1: turns is missing; a script is a list of turns"),
    "a typo": ("s.yaml", "turn: []\n", "s.yaml:1: turn: unknown key; did you mean turns?"),
    "repeat": ("s.yaml", "turns: []\nrepeat: 2\n", "s.yaml:2: repeat: is 2; give true or false"),
}


@pytest.mark.parametrize(("name", "text", "said"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_told_with_its_place(name, text, said, tmp_path):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(FileError) as failure:
        Scripted.of_file(file)
    assert str(failure.value).startswith(f"{tmp_path}/{said}")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "s.yaml").write_bytes(b"- \xff\xfe\n")
    wrong = {"absent.yaml": "there is no such file", "s.yaml": "UTF-8", ".": "cannot be read"}
    for name, said in wrong.items():
        with pytest.raises(FileError, match=said):
            Scripted.of_file(tmp_path / name)
