"""Response gates: the answer waits for a hook's verdict or a person's, and nothing else does."""

import asyncio
import json

import pytest

from hookline.engine.record import Verdict, VerdictKind
from tests.sympozium.run.conftest import hook, lifecycle, with_approver

LATER = hook("later", 'printf %s "$AGENT_RESULT" > $TRUTH/later')


def gate(script, **more):
    return hook("gate", script, gate=True, **more)


def says(action, **more):
    return f"""echo '{json.dumps({"action": action, **more})}' > $IPC_DIR/control/gate-verdict"""


BLOCKED = "Response blocked: gate hook did not return a verdict"
TABLE = {
    "approve": (says("approve"), "block", "approved", "fine"),
    "reject with a text": (says("reject", response="not today"), "block", "rejected", "not today"),
    "reject": (says("reject"), "block", "rejected", "Response blocked by policy"),
    "rewrite": (says("rewrite", response="nicer"), "block", "rewritten", "nicer"),
    "rewrite to nothing": (says("rewrite"), "block", "rewritten", ""),
    "none, it ended well": ("true", "block", "timeout", BLOCKED),
    "none, it failed": ("exit 1", "block", "error", BLOCKED),
    "none, default allow": ("exit 1", "allow", "allowed-by-default", "fine"),
    "another action": (says("maybe"), "block", "timeout", BLOCKED),
    "no JSON": ("echo yes > $IPC_DIR/control/gate-verdict", "allow", "allowed-by-default", "fine"),
    "past its limit": ("sleep 60", "block", "error", BLOCKED),
}


@pytest.mark.rule("sympozium 1.17.17", "sympozium 1.14", "sympozium B6")
@pytest.mark.parametrize(("script", "default", "label", "result"), TABLE.values(), ids=TABLE.keys())
async def test_every_row_of_the_outcome_table(ground, script, default, label, result):
    after = [LATER, gate(script, timeout="1s" if "sleep" in script else "60s")]
    ran = await ground.run(lifecycle(after=after, gateDefault=default))
    assert ran.phase == "Succeeded"
    assert ran.status["gateVerdict"] == label
    assert ran.status.get("result", "") == result
    assert ground.said("later") == result


@pytest.mark.rule("sympozium X3", "sympozium 1.17.17")
async def test_a_verdict_that_the_agent_left_counts_for_nothing(ground):
    ok = 'printf \'{"status":"success","response":"x"}\' > $IPC_DIR/output/result.json'
    ran = await ground.run(
        lifecycle(after=[gate("true")]), agent_command=("sh", "-c", f"{ok}; {says('approve')}")
    )
    assert (ran.status["gateVerdict"], ran.status["result"]) == ("timeout", BLOCKED)


WORDS = {
    "approve": (Verdict(VerdictKind.APPROVE, by="ada"), "approved", "fine"),
    "reject": (Verdict(VerdictKind.REJECT, "no names", by="ada"), "rejected", "no names"),
    "reject without a word": (
        Verdict(VerdictKind.REJECT, by="ada"),
        "rejected",
        "Response blocked by policy",
    ),
    "rewrite": (Verdict(VerdictKind.REWRITE, value="shorter", by="ada"), "rewritten", "shorter"),
}


@pytest.mark.rule("sympozium 1.17.17", "sympozium X3")
@pytest.mark.parametrize(("word", "label", "result"), WORDS.values(), ids=WORDS.keys())
@pytest.mark.parametrize("when", ["during", "after"])
async def test_a_persons_word_counts_while_the_hook_runs_and_after_it(ground, word, label, result, when):
    asked = []

    async def answer(question):
        asked.append(question)
        return word

    async def late(question):
        asked.append(question)
        while not (ground.truth / "through").exists():
            await asyncio.sleep(0.02)
        return word

    script = "sleep 60" if when == "during" else "touch $TRUTH/through"
    with_approver(ground, answer if when == "during" else late)
    ran = await ground.run(lifecycle(after=[gate(script), LATER]))
    assert (ran.status["gateVerdict"], ran.status.get("result", "")) == (label, result)
    assert ground.said("later") == result
    assert ran.status["gate"]["by"] == "ada"
    assert ran.status.get("conditions") is None
    assert asked[0].value == "fine"


async def test_a_question_is_in_the_journal_for_approve_in_another_terminal(ground):
    async def wait(question):
        while (found := ground.journal.question(question.id)) is None or found.verdict is None:
            await asyncio.sleep(0.02)
        return found.verdict

    with_approver(ground, wait)
    running = asyncio.ensure_future(ground.run(lifecycle(after=[gate("true")])))
    while not (pending := ground.journal.questions()):
        await asyncio.sleep(0.02)
    assert ground.journal.answer(pending[0].id, Verdict(VerdictKind.APPROVE, by="bob"))
    ran = await running
    assert (ran.status["gateVerdict"], ran.status["gate"]["by"]) == ("approved", "bob")
    assert ground.journal.questions() == []


async def test_the_answer_of_a_failed_agent_waits_for_nobody(ground):
    async def never(_question):
        raise AssertionError("nobody is to be asked")

    with_approver(ground, never)
    ran = await ground.run(lifecycle(after=[gate("touch $TRUTH/gate")]), agent_command=("sh", "-c", "exit 1"))
    assert ran.phase == "Failed"
    assert (ground.truth / "gate").exists()
    assert "gateVerdict" not in ran.status
