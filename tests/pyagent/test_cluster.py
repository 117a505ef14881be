"""`hookline run agent.py --on kubernetes` as far as no cluster is needed, and what its pod's program prints."""

import pytest

from hookline import MemoryJournal, SqliteJournal
from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended
from hookline.errors import FileError, HooklineError, UsageError
from hookline.hookfile.sources import OMISSION
from hookline.journal.stream import LineReader, Message, Sender
from hookline.kube.jobs import JobEnd
from hookline.pyagent.cluster import RunFiles, RunStream

KUBERNETES = ("--on", "kubernetes")
IMAGE = ("--image", "registry/agent:1")


def lines_of(text):
    received = LineReader()
    found = [received.read(line)[0] for line in text.split("\n")]
    return [each for each in found if each is not None]


@pytest.mark.parametrize(("asked", "code"), [("tidy up", 0), ("nothing", 0), ("bad", 1)])
def test_with_records_all_that_the_journal_has_is_printed_and_the_answer_last(hookline, asked, code):
    done = hookline("run", "agent.py", asked, "--records", "--ask", "refuse")
    assert done.returncode == code
    journal = SqliteJournal(hookline.folder / "home" / "journal.db")
    try:
        [row] = journal.runs()
        kept = journal.records(row.run_id)
    finally:
        journal.close()
    found = lines_of(done.stdout)
    records = [each for each in found if not isinstance(each, Message)]
    assert records == [
        each._replace(owner=mine.owner) if isinstance(each, Begun) else each
        for each, mine in zip(kept, records, strict=True)
    ]
    texts = [each.value["text"] for each in found if isinstance(each, Message)]
    assert texts == {"tidy up": ["kept it"], "nothing": ["skipped: nothing to do"], "bad": []}[asked]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agent.py", "hi", *KUBERNETES], "needs one image for the agent"),
        (["agent.py", "hi", *KUBERNETES, *IMAGE, *IMAGE], "these are 2: registry/agent:1, registry/agent:1"),
        (["agent.py", "hi", *KUBERNETES, "--image", "a=b"], "needs one image"),
        (["agent.py", *KUBERNETES, *IMAGE], "INPUT is missing"),
        (["agent.py", "x" * 102_401, *KUBERNETES, *IMAGE], "the question has 102401 bytes"),
        (
            ["agent.py", "hi", *KUBERNETES, *IMAGE, "--ask", "journal"],
            "questions cannot be answered in a pod",
        ),
        (
            ["agent.py", "hi", *KUBERNETES, *IMAGE, "--network"],
            "--network: not with --on kubernetes",
        ),
        (
            ["agent.py", "hi", *KUBERNETES, *IMAGE, "--code-to", "/dev/tty"],
            "--code-to: not with --on kubernetes",
        ),
        (["missing.py", "hi", *KUBERNETES, *IMAGE], "missing.py: there is no such file"),
        (["kagent.yaml", "hi", *KUBERNETES, *IMAGE], "a kagent Agent is applied with kubectl"),
        (["agent.py", "hi", "--secret", "key"], "only with --on kubernetes"),
        (["agent.py", "hi", "--namespace", "here"], "only with --on kubernetes"),
        (["agent.py", "hi", "--context", "here"], "only with --on kubernetes"),
        (["agent.py", "hi", *KUBERNETES, *IMAGE, "--kubeconfig", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_asked_of_a_cluster(hookline, words, said):
    (hookline.folder / "kagent.yaml").write_text(
        "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: a}\nspec: {declarative: {modelConfig: m}}\n"
    )
    done = hookline("run", *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_a_file_is_sent_with_the_modules_beside_it_that_it_imports_and_no_others(tmp_path):
    (tmp_path / "agent.py").write_text("import os\nimport near.deep\nfrom words import A\n")
    (tmp_path / "words.py").write_text("def f():\n    import others\nA = 1\n")
    (tmp_path / "others.py").write_text("import agent, words\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "__init__.py").write_text("")
    (tmp_path / "near" / "deep.py").write_text("import words\n")
    (tmp_path / "more.yaml").write_text("hooks: []\n")
    script = tmp_path / "script.json"
    script.write_text('["hi"]')
    sent = RunFiles(
        f"{tmp_path}/agent.py:agent", [str(tmp_path / "more.yaml"), "guards"], f"scripted/{script}"
    )
    assert sorted(sent.files) == [
        *(
            "agent/agent.py",
            "agent/near/__init__.py",
            "agent/near/deep.py",
            "agent/others.py",
            "agent/words.py",
        ),
        *("hooks-1/more.yaml", "model/script"),
    ]
    assert sent.target == "/given/agent/agent.py:agent"
    assert sent.hooks == ["/given/hooks-1/more.yaml", "guards"]
    assert sent.model == "scripted//given/model/script"


def test_a_hook_file_is_sent_with_the_code_that_it_names(tmp_path):
    (tmp_path / "agent.py").write_text("")
    (tmp_path / "guard.py").write_text("")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "hookline.yaml").write_text("hooks:\n  - {name: a, on: tool.start, python: 'guard.py:a'}\n")
    (tmp_path / "link.yaml").symlink_to("hookline.yaml")
    sent = RunFiles(str(tmp_path / "agent.py"), [str(tmp_path / "link.yaml"), OMISSION], "")
    assert sorted(sent.files) == ["agent/agent.py", "hooks-1/guard.py", "hooks-1/hookline.yaml"]
    assert sent.hooks == ["/given/hooks-1/hookline.yaml", OMISSION]


def test_more_than_a_secret_holds_is_refused(tmp_path):
    (tmp_path / "agent.py").write_text(f"TEXT = '{'x' * 1_000_000}'\n")
    with pytest.raises(UsageError, match="put them into the image"):
        RunFiles(str(tmp_path / "agent.py"), [], "")


def test_a_file_that_is_no_python_is_told_with_its_line(tmp_path):
    (tmp_path / "agent.py").write_text("import os\nimport (\n")
    with pytest.raises(FileError, match=r"agent\.py:2: this is not Python"):
        RunFiles(str(tmp_path / "agent.py"), [], "")


async def test_nothing_of_a_run_that_works_on_a_cluster_is_ended_here(tmp_path):
    from hookline.engine.point import Scope
    from hookline.hookfile.ends import hooks_again
    from hookline.journal.recovery import owner, recover

    journal = SqliteJournal(tmp_path / "journal.db")
    try:
        dead = owner()._replace(pid=2**22, started="0")
        for run_id, source in (
            ("here", f"{tmp_path}/agent.py:agent"),
            ("there", "kubernetes:a/b at https://c"),
        ):
            await journal.write(
                Begun(run_id, "1", None, Scope.RUN, "agent", 1.0, {"input": ""}, {}, {}, source, dead)
            )
        ended = await recover(journal, owner(), hooks_again)
        assert [each.run_id for each in ended] == ["here"]
        assert [row.run_id for row in journal.unfinished()] == ["there"]
    finally:
        journal.close()


@pytest.mark.parametrize("told", [True, False])
async def test_an_answer_that_was_lost_with_its_log_is_no_success(told, capsys):
    journal, lines = MemoryJournal(), []
    sender = Sender(lines.append)
    sender.record(Begun("r1", "1", None, Scope.RUN, "agent", 1.0, {"input": ""}, {}))
    if told:
        sender.record(Ended("r1", "1", Scope.RUN, 2.0, Status.OK, None, None))
        sender.say("result", {"value": {}, "text": "done"})
    stream = RunStream(journal, "kubernetes:a/b at c", None, quiet=True)
    for line in lines:
        await stream.printed(line.removesuffix("\n"))
    ending = JobEnd(exit_code=0)
    await stream.closed(ending)
    [ended] = [each for each in journal.records("r1") if isinstance(each, Ended)]
    if told:
        assert (stream.over(ending, json=False), capsys.readouterr().out, ended.status) == (
            0,
            "done\n",
            "ok",
        )
        return
    with pytest.raises(HooklineError, match="its answer is lost: the end of the pod's log is missing"):
        stream.over(ending, json=False)
    assert (ended.status, "is missing" in ended.error) == ("lost", True)
