"""What every journal must do, whichever way it keeps its records."""

import time
from dataclasses import dataclass

import pytest

from hookline import Agent
from hookline.agent.models.script import Scripted
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import (
    Begun,
    Called,
    Decided,
    Ended,
    Journal,
    Owner,
    Question,
    Verdict,
    VerdictKind,
)
from hookline.engine.result import HookAction, Reason
from hookline.errors import JournalError
from hookline.hookfile.attach import load_hooks
from hookline.journal.sqlite import MemoryJournal, SqliteJournal
from hookline.runners.local import LocalRunner

RUN = "run-1"


@pytest.fixture(params=["memory", "sqlite"])
def make(request, tmp_path):
    """Makes journals of one kind and closes them afterwards."""
    made = []

    def one(**options):
        if request.param == "memory":
            made.append(MemoryJournal(**options))
        else:
            made.append(SqliteJournal(tmp_path / "home" / f"journal-{len(made)}.db", **options))
        return made[-1]

    yield one
    for journal in made:
        journal.close()


@pytest.fixture
def journal(make):
    return make()


def begun(run_id=RUN, scope_id="s1", parent_id=None, scope=Scope.RUN, at=1000.5, **more):
    return Begun(
        run_id,
        scope_id,
        parent_id,
        scope,
        more.pop("name", "greeter"),
        at,
        more.pop("payload", None),
        {},
        **more,
    )


def called(run_id=RUN, **changes):
    record = Called(
        run_id, "s1", Point.TOOL_START, "guard", 1001.25, 0.5, HookAction.CONTINUE,
        None, None, None, "enforce", None, None, None, None, None,
    )  # fmt: skip
    return record._replace(**changes)


def decided(**changes):
    record = Decided(RUN, "s1", Point.TOOL_START, 1002.0, HookAction.CONTINUE, (), None, None, None)
    return record._replace(**changes)


def ended(run_id=RUN, scope_id="s1", scope=Scope.RUN, at=1003.75, status=Status.OK, output=None, error=None):
    return Ended(run_id, scope_id, scope, at, status, output, error)


def question(id="q1", run_id=RUN, **changes):
    given = {
        "scope_id": "s1",
        "point": Point.TOOL_START,
        "tool": "bash",
        "reasons": (Reason("guard", HookAction.ASK, "may it?"),),
        "value": {"command": "rm"},
        "asked": 1001.0,
    }
    return Question(id=id, run_id=run_id, **{**given, **changes})


def test_it_is_a_journal(journal):
    assert isinstance(journal, Journal)


async def test_records_come_back_as_they_were_in_the_order_of_writing(journal):
    told = [
        begun(
            payload={"input": "hi", "n": [1, 2.5, None, True]},
            declaration={"format": "native", "hooks": []},
            source="hookline.yaml",
            owner=Owner("boot", 12, "345"),
        ),
        begun(scope_id="s2", parent_id="s1", scope=Scope.TOOL, name="bash", payload="naïve ☃"),
        called(
            given={"command": "ls"}, changed={"command": "ls -l"}, reason="why", tell_model="a", tell_user="b"
        ),
        called(point="x.claude.Notification", error_kind="raised", error="raised ValueError", note="n"),
        decided(
            action=HookAction.BLOCK,
            reasons=(Reason("guard", HookAction.BLOCK, "no"),),
            payload={"a": 1},
            output=["b"],
            note="asked",
        ),
        ended(scope_id="s2", scope=Scope.TOOL, status=Status.BLOCKED, output={"x": "y"}),
        ended(status=Status.FAILED, error="broke"),
    ]
    for record in told:
        if isinstance(record, Begun | Ended):
            await journal.write(record)
        else:
            journal.note(record)

    back = journal.records(RUN)

    assert back == told
    assert [type(record) for record in back] == [type(record) for record in told]
    assert type(back[0].owner) is Owner
    assert type(back[0].scope) is Scope
    assert type(back[2].point) is Point
    assert type(back[2].action) is HookAction
    assert type(back[4].reasons[0]) is Reason
    assert type(back[6].status) is Status


async def test_records_of_runs_are_kept_apart(journal):
    await journal.write(begun("run-a"))
    await journal.write(begun("run-b"))
    journal.note(called("run-a", hook="of a"))
    journal.note(called("run-b", hook="of b"))
    journal.note(called("run-a", hook="of a again"))
    await journal.write(ended("run-a"))

    assert [record.hook for record in journal.records("run-a") if isinstance(record, Called)] == [
        "of a",
        "of a again",
    ]
    assert [record.hook for record in journal.records("run-b") if isinstance(record, Called)] == ["of b"]
    assert journal.records("run-c") == []


async def test_what_is_changed_after_it_was_told_changes_nothing(journal):
    payload = {"list": [1]}
    await journal.write(begun(payload=payload))
    journal.note(called(given=payload))
    payload["list"].append(2)

    first, second = journal.records(RUN)
    assert (first.payload, second.given) == ({"list": [1]}, {"list": [1]})

    first.payload["list"].append(3)
    assert journal.records(RUN)[0].payload == {"list": [1]}


async def test_values_that_json_cannot_carry_are_kept_by_how_they_show_themselves(journal):
    @dataclass
    class Place:
        street: str
        when: object

    class Mute:
        def __repr__(self):
            raise RuntimeError

    loop = [1]
    loop.append(loop)
    journal.note(called(given={"place": Place("High", {1}), (1, 2): b"x", "nan": float("nan")}))
    journal.note(called(given=Mute(), changed=loop))
    journal.note(called(given="\ud83d", changed=10**6000))

    one, two, three = journal.records(RUN)
    assert one.given == {"place": {"street": "High", "when": "{1}"}, "(1, 2)": "b'x'", "nan": "nan"}
    assert two.given == "<Mute, which cannot be shown: RuntimeError>"
    assert two.changed == [1, "<list, inside itself>"]
    assert (three.given, three.changed) == ("\ud83d", "<a number of 19932 bits>")


async def test_a_run_is_listed_from_its_beginning_to_its_end(journal):
    await journal.write(begun(source="f.yaml", owner=Owner("boot", 7, "9"), at=5.0))
    await journal.write(begun(scope_id="s2", parent_id="s1", scope=Scope.AGENT, name="inner"))
    journal.note(called())
    journal.note(called())
    journal.note(decided())

    (row,) = journal.runs()
    assert (row.run_id, row.name, row.began, row.source, row.owner) == (
        RUN,
        "greeter",
        5.0,
        "f.yaml",
        Owner("boot", 7, "9"),
    )
    assert (row.ended, row.status, row.error, row.calls) == (None, None, None, 2)

    await journal.write(ended(scope_id="s2", scope=Scope.AGENT, status=Status.FAILED))
    assert journal.runs()[0].ended is None

    await journal.write(ended(at=6.0, status=Status.FAILED, error="it broke"))
    (row,) = journal.runs()
    assert (row.ended, row.status, row.error, row.calls) == (6.0, Status.FAILED, "it broke", 2)
    assert type(row.status) is Status


async def test_runs_are_listed_newest_first_up_to_the_limit(journal):
    for number in (2, 1, 3):
        await journal.write(begun(f"run-{number}", at=float(number)))

    assert [row.run_id for row in journal.runs(limit=2)] == ["run-3", "run-2"]


async def test_runs_are_found_by_how_their_id_begins(journal):
    for number, run_id in enumerate(["ab1", "ab2", "a%1", "b"]):
        await journal.write(begun(run_id, at=float(number)))

    assert journal.find("ab") == ["ab2", "ab1"]
    assert journal.find("a%") == ["a%1"]
    assert journal.find("") == ["b", "a%1", "ab2", "ab1"]
    assert journal.find("zz") == []


async def test_unfinished_runs_are_those_without_an_end(journal):
    for number in (1, 2, 3):
        await journal.write(begun(f"run-{number}", at=float(number)))
    await journal.write(ended("run-2"))

    assert [row.run_id for row in journal.unfinished()] == ["run-1", "run-3"]


async def test_only_one_can_take_over_an_unfinished_run(journal):
    dead, me, other = Owner("boot", 1, "1"), Owner("boot", 2, "2"), Owner("boot", 3, "3")
    await journal.write(begun(owner=dead))
    assert journal.claim(RUN, dead, me)
    assert not journal.claim(RUN, dead, other)
    assert journal.unfinished()[0].owner == me

    await journal.write(ended())
    assert not journal.claim(RUN, me, other)
    assert not journal.claim("no such run", dead, me)


async def test_an_agent_alone_is_a_run_too(journal):
    await journal.write(begun(scope=Scope.AGENT))
    assert [row.run_id for row in journal.unfinished()] == [RUN]

    await journal.write(ended(scope=Scope.AGENT, status=Status.OK))
    assert journal.runs()[0].status is Status.OK


async def test_a_run_in_a_workspace_is_over_when_the_run_is(journal):
    await journal.write(begun(scope_id="w", scope=Scope.WORKSPACE, name="folder", at=1.0))
    await journal.write(begun(scope_id="r", parent_id="w", owner=Owner("boot", 1, "2"), at=2.0))
    await journal.write(begun(scope_id="x", scope=Scope.SESSION, name="talk", at=2.5))
    assert [(row.name, row.began, row.owner) for row in journal.runs()] == [
        ("greeter", 1.0, Owner("boot", 1, "2"))
    ]

    await journal.write(ended(scope_id="r", at=3.0))
    await journal.write(ended(scope_id="w", scope=Scope.WORKSPACE, status=Status.FAILED, at=4.0))
    assert [(row.ended, row.status) for row in journal.runs()] == [(3.0, Status.OK)]


async def test_a_second_attempt_opens_the_run_again(journal):
    await journal.write(begun(at=1.0, source="f.yaml"))
    await journal.write(ended(status=Status.FAILED, error="first", at=2.0))
    await journal.write(begun(scope_id="again", at=3.0))

    (row,) = journal.unfinished()
    assert (row.began, row.status, row.error, row.source) == (1.0, None, None, "f.yaml")

    await journal.write(ended(scope_id="again", at=4.0))
    assert [(row.status, row.ended) for row in journal.runs()] == [(Status.OK, 4.0)]


async def test_secrets_are_masked_by_name_and_by_value(make):
    journal = make(secrets=["hunter2!"])
    await journal.write(
        begun(name="x hunter2!", payload={"api_token": "abc", "safe": "say hunter2! now"}, source="hunter2!")
    )
    journal.note(
        called(hook="curl hunter2!", error="PASSWORD=abc", reason="hunter2!", tell_user="a hunter2!")
    )
    journal.note(decided(reasons=(Reason("guard", HookAction.CONTINUE, "the hunter2!"),)))
    await journal.write(ended(output={"cookie": "abc"}, error="hunter2!"))
    await journal.ask(
        question(
            value={"password": "abc", "x": "hunter2!"}, reasons=(Reason("g", HookAction.ASK, "hunter2!"),)
        )
    )
    journal.answer("q1", Verdict(VerdictKind.REJECT, "not hunter2!"))

    first, call, outcome, last = journal.records(RUN)
    assert (first.name, first.source) == ("x ***", "***")
    assert first.payload == {"api_token": "***", "safe": "say *** now"}
    assert (call.hook, call.error, call.reason, call.tell_user) == (
        "curl ***",
        "PASSWORD=***",
        "***",
        "a ***",
    )
    assert outcome.reasons == (Reason("guard", HookAction.CONTINUE, "the ***"),)
    assert (last.output, last.error) == ({"cookie": "***"}, "***")
    assert (journal.runs()[0].name, journal.runs()[0].error, journal.runs()[0].source) == (
        "x ***",
        "***",
        "***",
    )
    asked = journal.question("q1")
    assert (asked.value, asked.reasons[0].text, asked.verdict.text) == (
        {"password": "abc", "x": "********"},
        "********",
        "not ***",
    )
    assert asked.hidden == len("hunter2!")


async def test_a_secret_that_is_a_word_of_our_own_does_not_make_a_record_unreadable(make):
    journal = make(secrets=["continue", "tool.start", "enforce"])
    journal.note(called(given="to continue"))

    (call,) = journal.records(RUN)
    assert (call.given, call.action, call.point) == ("to ***", HookAction.CONTINUE, Point.TOOL_START)


async def test_a_declaration_keeps_references_and_says_when_it_was_masked(make):
    journal = make(secrets=["hunter2!"], cap=100)
    whole = {"env": {"API_TOKEN": "$API_TOKEN"}, "text": "x" * 1000}
    await journal.write(begun("run-a", declaration=whole))
    await journal.write(begun("run-b", declaration={"run": "login hunter2!"}))

    assert journal.records("run-a")[0].declaration == whole
    assert journal.records("run-b")[0].declaration == {"run": "login ***", "__masked__": True}


async def test_what_is_long_is_cut_and_says_so(make):
    journal = make(cap=200)
    await journal.write(begun(payload="é" * 500))
    journal.note(called(given="short", changed={"a": "x" * 500}, error="e" * 500))
    await journal.ask(question(value="y" * 500))

    first, call = journal.records(RUN)
    assert first.payload["__cut__"] is True
    assert first.payload["bytes"] == 1002
    assert first.payload["head"].startswith('"ééé')
    assert call.given == "short"
    assert call.changed["head"].startswith('{"a":"xxx')
    assert call.error == "e" * 200 + " ... (cut, 500 bytes)"
    assert journal.question("q1").value == "y" * 500, "a person decides about the whole"


async def test_payloads_can_be_left_out(make):
    journal = make(payloads=False)
    await journal.write(begun(payload="P"))
    journal.note(called(given="G", changed="C", reason="R"))
    journal.note(decided(payload="P", output="O"))
    await journal.write(ended(output="O"))
    await journal.ask(question(value="V"))

    first, call, outcome, last = journal.records(RUN)
    assert (first.payload, call.given, call.changed, outcome.payload, outcome.output, last.output) == (
        None,
    ) * 6
    assert call.reason == "R"
    assert journal.question("q1").value is None


async def test_a_question_waits_for_its_answer(journal):
    asked = question()
    asked = asked._replace(digest=(await journal.ask(asked)).digest)
    assert journal.question("q1") == asked
    assert journal.questions() == [asked]
    assert type(journal.questions()[0].point) is Point

    said = Verdict(VerdictKind.REWRITE, "better", {"command": "ls", "password": "as given"}, "ann")
    assert journal.answer("q1", said)

    assert journal.question("q1").verdict == said._replace(digest=asked.digest)
    assert type(journal.question("q1").verdict.kind) is VerdictKind
    assert journal.questions() == []
    assert [one.id for one in journal.questions(pending=False)] == ["q1"]


async def test_the_first_answer_stands(journal):
    await journal.ask(question())
    assert journal.answer("q1", Verdict(VerdictKind.REJECT, "no"))
    assert not journal.answer("q1", Verdict(VerdictKind.APPROVE, "yes"))
    assert not journal.answer("q2", Verdict(VerdictKind.APPROVE))

    assert journal.question("q1").verdict.kind is VerdictKind.REJECT
    assert journal.question("q2") is None


async def test_an_earlier_answer_is_none_to_what_is_asked_again(journal):
    await journal.ask(question(value="ls"))
    journal.answer("q1", Verdict(VerdictKind.APPROVE))
    await journal.ask(question(value="rm"))

    assert (journal.question("q1").value, journal.question("q1").verdict) == ("rm", None)
    assert journal.answer("q1", Verdict(VerdictKind.REJECT))


async def test_a_verdict_on_another_input_is_none(journal):
    ls = (await journal.ask(question(value={"command": "ls"}))).digest
    rm = (await journal.ask(question(value={"command": "rm"}))).digest
    assert rm != ls
    assert (await journal.ask(question(value={"command": "rm"}))).digest == rm
    assert not journal.answer("q1", Verdict(VerdictKind.APPROVE, digest=ls))
    assert journal.question("q1").verdict is None
    assert journal.answer("q1", Verdict(VerdictKind.APPROVE, digest=rm))
    assert journal.question("q1").verdict.digest == rm


async def test_questions_are_listed_by_run_in_the_order_of_asking(journal):
    await journal.ask(question("late", asked=2.0))
    await journal.ask(question("early", asked=1.0))
    await journal.ask(question("other", run_id="run-2", asked=3.0))

    assert [one.id for one in journal.questions()] == ["early", "late", "other"]
    assert [one.id for one in journal.questions(RUN)] == ["early", "late"]
    assert journal.questions("run-3") == []


async def test_a_rewritten_input_is_forgotten_when_the_run_ends(journal):
    await journal.write(begun())
    digest = (await journal.ask(question())).digest
    journal.answer("q1", Verdict(VerdictKind.REWRITE, "t", "new", "ann"))
    await journal.write(ended(scope_id="other", scope=Scope.TOOL))
    assert journal.question("q1").verdict.value == "new"

    await journal.write(ended())
    assert journal.question("q1").verdict == Verdict(VerdictKind.REWRITE, "t", None, "ann", digest)


async def test_pruning_drops_finished_runs_that_are_too_old(journal):
    now = time.time()
    for run_id, age in (("old", 40), ("older", 50), ("new", 1)):
        await journal.write(begun(run_id, at=now - age * 86400 - 5))
        await journal.ask(question(f"q-{run_id}", run_id=run_id))
        await journal.write(ended(run_id, at=now - age * 86400))
    await journal.write(begun("open", at=now - 60 * 86400))

    assert journal.prune(keep_days=30, keep_bytes=10**9) == 2
    assert [row.run_id for row in journal.runs()] == ["new", "open"]
    assert journal.records("old") == []
    assert [one.id for one in journal.questions()] == ["q-new"]
    assert journal.prune(keep_days=30, keep_bytes=10**9) == 0


async def test_pruning_by_size_drops_the_oldest_first_and_never_an_open_run(journal):
    now = time.time()
    await journal.write(begun("open", at=now - 100, payload="x" * 50000))
    for number in range(10):
        await journal.write(begun(f"run-{number}", at=now - 50 + number, payload="x" * 50000))
        await journal.write(ended(f"run-{number}", at=now - 40 + number))

    gone = journal.prune(keep_days=30, keep_bytes=400_000)

    assert 3 <= gone <= 6
    assert [row.run_id for row in journal.runs()] == [
        f"run-{number}" for number in range(9, gone - 1, -1)
    ] + ["open"]

    assert journal.prune(keep_days=30, keep_bytes=0) == 10 - gone
    assert [row.run_id for row in journal.runs()] == ["open"]


async def test_a_closed_journal_says_so_and_may_be_closed_again(journal):
    journal.close()
    journal.close()

    for use in (
        lambda: journal.note(called()),
        lambda: journal.records(RUN),
        lambda: journal.runs(),
        lambda: journal.answer("q1", Verdict(VerdictKind.APPROVE)),
        lambda: journal.flush(),
    ):
        with pytest.raises(JournalError, match="closed"):
            use()
    with pytest.raises(JournalError, match="closed"):
        await journal.write(begun())


async def test_a_run_that_is_kept_in_memory_leaves_no_files_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hookline.yaml").write_text(
        "hooks:\n- {name: see, on: agent.end, shell: 'echo seen > seen'}\n"
    )
    agent = Agent(id="a", model=Scripted(["done"]))
    runner = LocalRunner()
    hooks = load_hooks(str(tmp_path / "hookline.yaml"), runner).hooks
    try:
        await agent.run("go", hooks=hooks, workspace=tmp_path, journal=MemoryJournal())
    finally:
        await runner.close()
        await agent.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hookline.yaml", "seen"]
