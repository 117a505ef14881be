"""Nothing that an agent, a tool or a hook says moves the cursor, paints over what stands there, or hides in it."""

import json
import logging
import shlex
import sys
import unicodedata

import pytest

from hookline.engine.plain import visible, visible_json
from hookline.symphony.serve import _drawn, api
from hookline.terminal import log_filter
from tests.terminals import HOOKLINE

# Clears the screen, by both sets of controls; sets the title; turns text around; writes with letters of no width.
EVIL = "x\x1b[2J\x9b2K\x1b]0;owned\x07\b\x7f\u202egnp\u2066\u200b\u200d\ufeff\U000e0041\u2028\u3164y"
SHOWN = r"x\x1b[2J\x9b2K\x1b]0;owned\x07\x08\x7f\u202egnp\u2066\u200b\u200d\ufeff\U000e0041\u2028\u3164y"
STAYS = "é שלום عربي كَتَبَ กำ 中文\u3000a\u00a0b 👍"
EVIL_CODE = ascii(EVIL)
AGENT = f"""
from hookline import Agent, HookResult, Scripted, hook, tool

@hook(match="say")
def asks(ctx, c):
    return HookResult.ask({EVIL_CODE})

@hook(match="say", inline=True)
def tells(ctx, c):
    return HookResult.continue_with(modified_payload={{"word": {EVIL_CODE}}}, tell_user={EVIL_CODE})

@hook(match="refused")
def refuses(ctx, c):
    return HookResult.block({EVIL_CODE})

@tool
def say(word: str) -> str:
    return {EVIL_CODE}

@tool
def refused(word: str) -> str:
    raise ValueError({EVIL_CODE})

@tool
def fails(word: str) -> str:
    raise ValueError({EVIL_CODE})

asked = [{{"name": name, "arguments": {{"word": {EVIL_CODE}}}}} for name in ("say", "refused", "fails", {EVIL_CODE})]
agent = Agent(
    id="repaints", model=Scripted([{{"tools": asked}}, {EVIL_CODE}]),
    tools=[say, refused, fails], on_tool_start=[tells, asks, refuses],
)
"""


def obeyed(text):
    """The characters of a text that a terminal would obey, or not show."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return sorted(
        {c for c in text if (unicodedata.category(c) in kinds and c not in "\n\t") or c == "\u3164"}
    )


@pytest.fixture
def project(hookline):
    (hookline.folder / "repaints.py").write_text(AGENT)
    return hookline


def test_every_character_that_is_obeyed_or_not_shown_is_escaped_and_no_letter_or_mark_is():
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        kind = unicodedata.category(char)
        if kind in ("Cc", "Cf", "Zl", "Zp", "Cs") and char not in "\n\t":
            assert visible(char).startswith("\\"), hex(code)
            assert json.loads(visible_json(json.dumps(char, ensure_ascii=False))) == char
        elif kind[0] in "LNPSZ" or kind in ("Mn", "Mc", "Me"):
            blank = char in "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" or 0x180B <= code <= 0x180F
            selects = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
            assert (visible(char) != char) == (blank or selects), hex(code)
    assert visible(STAYS) == STAYS
    assert visible("one\r\ntwo\n\tthree") == "one\ntwo\n\tthree"


def test_a_run_paints_over_nothing(project, terminal):
    asking = terminal(HOOKLINE, "run", "repaints.py:agent", EVIL)
    asking.until("[a/r/w]")
    asking.type("a\n")
    asking.ended()
    # The terminal itself ends its lines with a return.
    shown = asking.shown.replace("\r\n", "\n").replace("^H", "")
    assert obeyed(shown) == []
    assert shown.splitlines()[-1] == SHOWN, "the answer"


@pytest.mark.parametrize(
    "words", [["runs"], ["runs", "last"], ["logs", "last"], ["runs", "zzz" + EVIL], ["no" + EVIL]]
)
def test_what_is_told_afterwards_paints_over_nothing(project, words):
    name = project.folder / f"named{EVIL.replace('/', '')}.py"
    name.write_text(AGENT.replace('id="repaints"', f"id={EVIL_CODE}"))
    done = project("run", name.name, EVIL, "--ask", "refuse")
    assert obeyed(done.stderr) == []
    done = project(*words)
    assert obeyed(done.stdout + done.stderr) == []
    assert r"\x1b[2J" in done.stdout + done.stderr


def test_a_name_makes_no_row_of_its_own(project):
    text = (project.folder / "agent.py").read_text()
    (project.folder / "agent.py").write_text(text.replace('id="guarded"', 'id="a\\n2222  innocent  ok"'))
    project("run", "agent.py", "x")
    assert len(project("runs").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "words",
    [["run", "repaints.py:agent", EVIL, "--json"], ["runs", "last", "--json"], ["logs", "last", "--json"]],
)
def test_json_has_the_true_values_and_none_of_their_characters(project, words):
    if words[0] != "run":
        project("run", "repaints.py:agent", EVIL)
    said = project(*words).stdout
    assert obeyed(said) == []
    values = [json.loads(line) for line in said.splitlines()]
    assert EVIL in json.dumps(values, ensure_ascii=False).replace("\\u001b", "\x1b").replace(
        "\\u0007", "\x07"
    ).replace("\\b", "\b")
    if words[0] == "run":
        assert values[-1]["result"] == EVIL


def test_an_answer_in_a_file_is_as_it_is(project):
    assert project("run", "repaints.py:agent", "x", "--quiet").stdout == f"{EVIL}\n"


def test_files_that_are_shown_before_they_are_approved_hide_nothing(project, terminal):
    (project.folder / "hookline.yaml").write_text(
        json.dumps(
            {"hooks": [{"name": "n", "on": "tool.start", "shell": f"echo {EVIL[:1]}\u202e\u200b hidden"}]}
        )
    )
    other = terminal(HOOKLINE, "trust")
    assert other.ended() == 0
    assert obeyed(other.shown.replace("\r\n", "\n")) == []
    assert r"echo x\u202e\u200b hidden" in other.shown


def test_an_approval_from_another_terminal_paints_over_nothing(project, terminal, screen):
    with project.start("run", "repaints.py:agent", EVIL, "--ask", "journal", "--code-to", screen.name) as run:
        done = project.at_terminal("approve", "last", typed=screen.code())
        assert done.returncode == 0, done.stderr
        _, said = run.communicate()
    assert obeyed(done.stdout + done.stderr + said) == []
    assert SHOWN in done.stdout.replace(r"\u001b", r"\x1b").replace(r"\u0007", r"\x07").replace(
        r"\b", r"\x08"
    )


def test_what_answer_tells_a_person_paints_over_nothing(project):
    (project.folder / "hookline.yaml").write_text("hooks: [\n")
    event = {"hook_event_name": f"Pre{EVIL}", "cwd": str(project.folder), "session_id": "s"}
    done = project("answer", stdin=json.dumps(event))
    assert r"\x1b" in done.stderr
    assert obeyed(done.stderr) == []


def test_the_picture_and_the_log_of_a_service_paint_over_nothing(tmp_path):
    from rich.console import Console

    state = {
        "counts": {"running": 1, "retrying": 1, "blocked": 1},
        "running": [{"issue_identifier": EVIL, "stopping": False, "turn_count": 0, "last_message": EVIL}],
        "blocked": [{"issue_identifier": EVIL, "error": EVIL}],
        "retrying": [{"issue_identifier": EVIL, "due_at": "2026-01-01T00:00:00Z", "error": EVIL}],
        "finished": [{"issue_identifier": EVIL, "outcome": "failed", "error": EVIL, "seconds": 1.0}],
        "configuration_error": EVIL,
    }
    with (tmp_path / "drawn").open("w") as file:
        console = Console(record=True, width=400, file=file)
        console.print(_drawn(state, [], "WORKFLOW.md"))
    drawn = console.export_text()
    assert obeyed(drawn) == []
    assert drawn.count(SHOWN) == 9
    record = logging.LogRecord("hookline", logging.INFO, "f", 1, "said %s", (EVIL,), None)
    assert log_filter()(record)
    assert record.getMessage() == f"said {SHOWN}"


def test_the_state_of_a_service_has_the_true_values_in_escapes():
    import asyncio

    class Service:
        def snapshot(self):
            return {"running": [EVIL]}

    sent = []

    async def asked():
        async def receive():
            return {"type": "http.request", "body": b""}

        async def send(message):
            sent.append(message)

        path = "/api/v1/state"
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "headers": [],
            "query_string": b"",
        }
        await api(Service())(scope, receive, send)

    asyncio.run(asked())
    body = b"".join(each.get("body", b"") for each in sent).decode()
    assert obeyed(body) == []
    assert json.loads(body) == {"running": [EVIL]}


def test_a_warning_of_a_log_that_nobody_keeps_paints_over_nothing(project):
    """Python itself writes it to standard error."""
    logs = "def fails(word: str) -> str:\n    import logging; logging.getLogger('hookline').warning('said ' + word)\n"
    (project.folder / "logs.py").write_text(AGENT.replace("def fails(word: str) -> str:\n", logs))
    done = project("run", "logs.py:agent", "x", "--ask", "refuse")
    assert f"said {SHOWN}\n" in done.stderr
    assert obeyed(done.stderr) == []


def test_a_message_about_wrong_words_paints_over_nothing(project):
    for words in (["run", f"{EVIL}.py"], ["check", f"{EVIL}.yaml"], ["run", "agent.py", "x", f"--{EVIL}"]):
        done = project(*words)
        assert done.returncode, shlex.join(words)
        assert obeyed(done.stderr + done.stdout) == []
