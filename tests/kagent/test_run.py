"""kagent agents on one machine: real manifests, real hook processes, a scripted model, through the command line."""

import asyncio
import json
import os
import textwrap
from pathlib import Path

import pytest

from hookline import HookBroke, Scripted
from hookline.engine.context import Facts, HookContext
from hookline.engine.point import Point
from hookline.kagent import load as kagent_load
from hookline.kagent.load import live, program
from hookline.kagent.system import load
from hookline.runners.local import LocalRunner
from tests.fakes import FakeProvider
from tests.fakes.images import MadeImage, tar_entry
from tests.fakes.registry import FakeRegistry
from tests.kagent.test_read import SEED

REF = "ghcr.io/org/h:v1"
SECURITY = "ghcr.io/org/security-hooks:v1.0"

# What each hook was given and where it ran, beside the workspace.
SEEN = """\
#!/usr/bin/env python3
import json, os, sys
with open(os.path.join(os.environ["HOOKLINE_CWD"], "seen.jsonl"), "a") as seen:
    seen.write(json.dumps({"event": json.load(sys.stdin), "argv": sys.argv[1:], "cwd": os.getcwd(),
                           "env": dict(os.environ)}) + "\\n")
"""


class Kagent:
    """An agent.yaml, the content of its one image in `image/`, and runs of it with a script."""

    def __init__(self, hookline):
        self.hookline = hookline
        self.folder = hookline.folder
        self.image = self.folder / "image"
        self.image.mkdir()

    def file(self, name, text, *, executable=True):
        path = self.image / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755 if executable else 0o644)

    def says(self, name, answer, code=0):
        """A hook that always answers the same."""
        given = answer if isinstance(answer, str) else json.dumps(answer)
        self.file(name, f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{given}\nEND\nexit {code}\n")

    def manifest(self, *hooks, declarative="{}", name="agent.yaml", more=""):
        listed = [{"ref": REF, "event": "PreToolUse", **hook} for hook in hooks]
        text = "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: helper}\nspec:\n"
        text += f"  declarative: {declarative}\n  hooks: {json.dumps(listed)}\n{more}"
        (self.folder / name).write_text(text)

    def script(self, *turns):
        (self.folder / "script.json").write_text(json.dumps(list(turns)))

    def run(self, *more, file="agent.yaml", ref=REF, tools="bash"):
        chosen = [f"--image={ref}=image"] if ref else []
        chosen += [f"--tools={tools}"] if tools else []
        return self.hookline("run", file, "go", "--model=scripted/script.json", *chosen, *more)

    def records(self, *more, **options):
        done = self.run("--json", *more, **options)
        return [json.loads(line) for line in done.stdout.splitlines()], done

    def seen(self):
        path = self.folder / "seen.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def kagent(hookline):
    hookline.environ.pop("KAGENT_HOOKS_FOLDER", None)
    made = Kagent(hookline)
    made.script(bash("echo hello"), "done")
    return made


def bash(command, **more):
    return {"tools": [{"name": "bash", "arguments": {"command": command}}], **more}


def called(records, hook):
    return [each for each in records if each["record"] == "called" and hook in each["hook"]]


def asked(records):
    """What the model was sent, request by request."""
    return [
        json.dumps(each["payload"])
        for each in records
        if each["record"] == "begun" and each["scope"] == "model"
    ]


def results(records):
    return [each["output"] for each in records if each["record"] == "ended" and each["scope"] == "tool"]


# The seed's example.


def seed_image(kagent):
    kagent.file(
        "check-tool-use.sh",
        """\
        #!/bin/sh
        case "$(cat)" in
          *"rm -rf"*) echo '{"decision": "block", "reason": "nothing is deleted here"}' ;;
          *) echo '{"decision": "approve"}' ;;
        esac
        """,
    )
    kagent.file(
        "inject-session-metadata.py",
        """\
        #!/usr/bin/env python3
        import json, sys
        event = json.load(sys.stdin)
        context = f"The session {event['session_id']} belongs to team blue."
        answer = {"hookEventName": "SessionStart", "additionalContext": context}
        print(json.dumps({"hookSpecificOutput": answer}))
        """,
    )


@pytest.mark.statement(
    "KA1", "KA2", "KA5", "KA17", "KA18", "KA19", "KA21", "KA22", "KA25", "KA26", "KA27", "KA28", "KA29", "KA30",
    "KA35", "KA40", "KA45",
)  # fmt: skip
@pytest.mark.rule("kagent 1.3", "kagent 1.4", "kagent 1.7")
def test_the_seed_s_manifest_runs_as_it_is(kagent):
    (kagent.folder / "seed.yaml").write_text(SEED)
    seed_image(kagent)
    kagent.script(
        bash("rm -rf build"),
        bash("echo kept", expect="refused: nothing is deleted here"),
        {"text": "kept it", "expect": "kept"},
    )
    records, done = kagent.records("--session=s1", file="seed.yaml", ref=SECURITY)
    assert (done.returncode, records[-1]["result"]) == (0, "kept it"), done.stderr
    first, second = called(records, "check-tool-use.sh")
    assert (first["action"], first["reason"]) == ("block", "nothing is deleted here")
    assert second["action"] == "allow"
    assert [each["tell_model"] for each in called(records, "inject-session-metadata.py")] == [
        "The session s1 belongs to team blue."
    ]
    assert all("The session s1 belongs to team blue." in request for request in asked(records))
    assert [output.get("output") for output in results(records)] == [None, "kept\n"]
    # One image for both hooks, fetched once and on record by its digest.
    assert done.stderr.count(f"image {SECURITY} is sha256:") == 1
    notes = records[0]["declaration"]["notes"]
    assert [note for note in notes if note.startswith(f"image {SECURITY} is sha256:")]


@pytest.mark.statement("KA13", "KA26")
@pytest.mark.rule("kagent 1.7")
def test_the_image_can_be_an_oci_layout(kagent):
    from examples.kagent.make_layout import layout

    (kagent.folder / "seed.yaml").write_text(SEED)
    seed_image(kagent)
    digest = layout(kagent.image, kagent.folder / "layout", tag="v1.0")
    kagent.script(bash("rm -rf build"), {"text": "kept it", "expect": "nothing is deleted here"})
    done = kagent.hookline(
        *("run", "seed.yaml", "go", "--model=scripted/script.json", "--tools=bash"),
        f"--image={SECURITY}=oci:layout",
    )
    assert (done.returncode, done.stdout) == (0, "kept it\n"), done.stderr
    assert f"image {SECURITY} is {digest}" in done.stderr


@pytest.mark.statement("KA13", "KA17", "KA26")
@pytest.mark.rule("kagent 1.7")
def test_the_image_can_come_from_a_registry_which_is_asked_once(kagent):
    (kagent.folder / "seed.yaml").write_text(SEED)
    seed_image(kagent)
    kagent.script(bash("rm -rf build"), {"text": "kept it", "expect": "nothing is deleted here"})
    files = [tar_entry(file.name, file.read_text(), mode=0o755) for file in sorted(kagent.image.iterdir())]
    image = MadeImage.of(files)
    with FakeRegistry() as registry:
        registry.put("org/security-hooks", "v1.0", image)
        source = f"{registry.host}/org/security-hooks:v1.0"
        done = kagent.hookline(
            *("run", "seed.yaml", "go", "--model=scripted/script.json", "--tools=bash"),
            f"--image={SECURITY}={source}",
        )
        fetched = [each.path for each in registry.asked if "/blobs/" in each.path]
    assert (done.returncode, done.stdout) == (0, "kept it\n"), done.stderr
    assert f"image {SECURITY} is {image.digest}" in done.stderr
    assert "v1.0 is not pinned" in done.stderr
    assert len(fetched) == len(set(fetched)) > 0


# What a hook is given.


@pytest.mark.statement("KA18", "KA34", "KA28", "KA15")
@pytest.mark.rule("kagent 1.3", "kagent 1.4", "kagent 1.7")
def test_a_hook_gets_its_event_on_stdin_and_its_folders_in_variables(kagent):
    kagent.file("seen.py", SEEN)
    kagent.manifest(
        *({"event": event, "command": "seen.py"} for event in ("SessionStart", "PreToolUse", "PostToolUse")),
        {"event": "SessionEnd", "command": "seen.py"},
    )
    done = kagent.run("--session=s1")
    assert done.returncode == 0, done.stderr
    start, before, after, end = kagent.seen()
    for each in (start, before, after, end):
        assert each["event"]["session_id"] == "s1"
        assert {"transcript_path", "cwd", "permission_mode"} <= set(each["event"])
        assert each["cwd"] == each["event"]["cwd"] == str(kagent.folder)
        folder = each["env"]["KAGENT_HOOKS_FOLDER"]
        assert each["env"]["HOOKLINE_HOOK_DIR"] == f"{folder}/h"
        assert (each["env"]["KAGENT_NAME"], each["env"]["KAGENT_NAMESPACE"]) == ("helper", "default")
        # It was the run's own, and is gone with it.
        assert not Path(folder).exists()
    assert [each["event"]["hook_event_name"] for each in (start, before, after, end)] == [
        "SessionStart",
        "PreToolUse",
        "PostToolUse",
        "SessionEnd",
    ]
    assert (start["event"]["source"], end["event"]["reason"]) == ("startup", "other")
    assert (before["event"]["tool_name"], before["event"]["tool_input"]) == (
        "bash",
        {"command": "echo hello"},
    )
    assert "tool_response" not in before["event"]
    assert after["event"]["tool_response"] == {"exit_code": 0, "output": "hello\n"}
    assert before["event"]["tool_use_id"] == after["event"]["tool_use_id"]


@pytest.mark.rule("kagent 1.4")
def test_a_hook_does_not_see_the_model_s_key_but_what_the_deployment_gives_it(kagent):
    kagent.file("seen.py", SEEN)
    kagent.manifest(
        {"command": "seen.py"},
        declarative=json.dumps(
            {
                "deployment": {
                    "env": [
                        {"name": "LEVEL", "value": "high"},
                        {"name": "AUDIT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "AUDIT_KEY"}}},
                    ]
                }
            }
        ),
    )
    kagent.hookline.environ |= {"OPENAI_API_KEY": "sk-model-key", "AUDIT_KEY": "hunter-two-two", "LC_X": "x"}
    done = kagent.run()
    assert done.returncode == 0, done.stderr
    env = kagent.seen()[0]["env"]
    assert (env["LEVEL"], env["AUDIT"], env["LC_X"]) == ("high", "hunter-two-two", "x")
    assert "PATH" in env
    assert not {"OPENAI_API_KEY", "AUDIT_KEY"} & set(env)


def test_a_secret_that_a_hook_repeats_is_masked_on_the_screen_and_in_the_journal(kagent):
    kagent.file("tells.sh", '#!/bin/sh\ncat > /dev/null\necho "no: $TOKEN_FOR_AUDIT" >&2\nexit 2\n')
    env = [{"name": "TOKEN_FOR_AUDIT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "PLAIN"}}}]
    kagent.manifest({"command": "tells.sh"}, declarative=json.dumps({"deployment": {"env": env}}))
    kagent.hookline.environ["PLAIN"] = "opensesame-opensesame"
    done = kagent.run()
    assert "blocked: no: ***" in done.stderr
    assert "opensesame-opensesame" not in done.stderr + kagent.hookline("logs", "last", "--json").stdout


# What is started.


@pytest.mark.rule("kagent 1.4")
def test_arguments_are_split_as_a_shell_would_and_scripts_found_in_the_image(kagent):
    kagent.file("seen.py", SEEN)
    kagent.file("sub/seen.py", SEEN)
    commands = {
        """seen.py "a b" c""": ["a b", "c"],
        "python3 seen.py --to 'x y'": ["--to", "x y"],
        "python3 -u sub/seen.py": [],
        "sub/seen.py $HOME *": ["$HOME", "*"],
    }
    # env hides the interpreter, so nothing is looked up behind it; that is told, and not taken for a yes.
    kagent.manifest(*({"command": command} for command in [*commands, "env python3 -B seen.py one"]))
    done = kagent.run()
    assert done.returncode == 0, done.stderr
    assert [each["argv"] for each in kagent.seen()] == list(commands.values()), done.stderr
    assert done.stderr.count("broke: ") == 1


@pytest.mark.statement("KA28")
@pytest.mark.parametrize(
    ("argv", "started"),
    [
        (["check.sh", "x"], ["DIR/check.sh", "x"]),
        (["gone.sh"], ["DIR/gone.sh"]),
        (["sub/gone.sh"], ["DIR/sub/gone.sh"]),
        (["sh", "check.sh"], ["sh", "DIR/check.sh"]),
        (["sh", "gone.sh"], ["sh", "DIR/gone.sh"]),
        (["sh", "/abs.sh"], ["sh", "/abs.sh"]),
        (["sh", "-c", "check.sh"], ["sh", "-c", "check.sh"]),
        (["/bin/sh", "-e", "check.sh"], ["/bin/sh", "-e", "DIR/check.sh"]),
        (["cat", "check.sh"], ["cat", "check.sh"]),
        (["python3", "x"], ["DIR/python3", "x"]),
    ],
)
def test_a_program_of_the_image_comes_first_then_one_on_the_path(tmp_path, argv, started):
    (tmp_path / "check.sh").touch()
    if argv[0] == "python3":
        (tmp_path / "python3").touch()
    assert program(argv, str(tmp_path), os.environ["PATH"]) == [
        word.replace("DIR", str(tmp_path)) for word in started
    ]


def test_a_script_in_the_agent_s_own_folder_is_never_taken_for_the_hook(kagent):
    (kagent.folder / "audit.py").write_text("raise SystemExit('I was written by the agent')")
    kagent.manifest({"command": "python3 audit.py"})
    done = kagent.run()
    assert done.returncode == 0
    assert "broke: could not start: python3 would run" in " ".join(done.stderr.split())
    assert "written by the agent" not in done.stderr


# What its answer means.


@pytest.mark.statement("KA20", "KA21", "KA22", "KA40")
@pytest.mark.rule("kagent 1.4")
@pytest.mark.parametrize(
    ("answer", "code", "action", "reason"),
    [
        ({"decision": "block", "reason": "not now"}, 0, "block", "not now"),
        ({"decision": "approve"}, 0, "allow", None),
        ({}, 0, "continue", None),
        ("", 0, "continue", None),
        ({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
          "permissionDecisionReason": "no"}}, 0, "block", "no"),
        ({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}, 0, "allow", None),
    ],
)  # fmt: skip
def test_what_a_hook_says_before_a_call_holds(kagent, answer, code, action, reason):
    kagent.says("says.sh", answer, code)
    kagent.manifest({"command": "says.sh"})
    records, done = kagent.records()
    assert done.returncode == 0, done.stderr
    (call,) = called(records, "says.sh")
    assert (call["action"], call["error"]) == (action, None)
    if reason:
        assert call["reason"] == reason
        assert results(records) == [{"error": f"refused: {reason}"}]
    else:
        assert results(records) == [{"exit_code": 0, "output": "hello\n"}]


@pytest.mark.statement("KA20")
@pytest.mark.rule("kagent 1.4")
def test_exit_code_2_refuses_and_its_errors_are_the_reason(kagent):
    kagent.file("no.sh", "#!/bin/sh\necho 'not in this repository' >&2\nexit 2\n")
    kagent.script(bash("echo hello"), {"text": "I stopped", "expect": "not in this repository"})
    kagent.manifest({"command": "no.sh"})
    done = kagent.run()
    assert (done.returncode, done.stdout) == (0, "I stopped\n"), done.stderr
    assert "blocked: not in this repository" in done.stderr


BREAKS = {
    "fails.sh": ("#!/bin/sh\nexit 1\n", "exited with 1"),
    "list.sh": ("#!/bin/sh\necho '[1]'\n", ""),
    "cut.sh": ('#!/bin/sh\necho \'{"decision": "blo\'\n', ""),
    "dies.sh": ("#!/bin/sh\nkill -9 $$\n", "was killed by SIGKILL"),
    "nobody.sh": ("#!/no/such/interpreter\n", "the interpreter that its first line names is not"),
    "no-line.sh": ("no first line\n", "could not start"),
    "gone.sh": (None, "does not exist"),
}


@pytest.mark.rule("kagent 1.4")
def test_a_hook_that_breaks_costs_its_opinion_not_the_agent_and_is_told(kagent):
    for name, (content, _) in BREAKS.items():
        if content:
            kagent.file(name, content)
    kagent.manifest(*({"command": name} for name in BREAKS))
    records, done = kagent.records()
    assert (done.returncode, records[-1]["result"]) == (0, "done"), done.stderr
    calls = [each for each in records if each["record"] == "called"]
    assert [each["hook"] for each in calls] == [f"PreToolUse: {name}" for name in BREAKS]
    for call, (_, said) in zip(calls, BREAKS.values(), strict=True):
        assert call["action"] == "continue"
        assert call["error"], call
        assert said in call["error"]
    assert results(records) == [{"exit_code": 0, "output": "hello\n"}]


def test_a_file_that_is_not_executable_is_told_with_what_to_do(kagent):
    kagent.file("plain.sh", "#!/bin/sh\n", executable=False)
    kagent.manifest({"command": "plain.sh"})
    said = " ".join(kagent.run().stderr.split())
    assert "plain.sh' is not executable; chmod +x it, or name its interpreter" in said


@pytest.mark.statement("KA4", "KA10")
@pytest.mark.rule("kagent 1.4")
@pytest.mark.parametrize(
    "command",
    ["echo mail ana@example.com", "echo mail ana@example.com >&2; exit 1"],
)
def test_a_hook_after_a_call_can_change_what_the_model_sees(kagent, command):
    kagent.file(
        "redact.py",
        """\
        #!/usr/bin/env python3
        import json, re, sys
        event = json.load(sys.stdin)
        assert event["hook_event_name"] == "PostToolUse"
        clean = json.loads(re.sub(r"[\\w.]+@[\\w.]+", "[email]", json.dumps(event["tool_response"])))
        answer = {"hookEventName": "PostToolUse", "updatedToolOutput": clean}
        print(json.dumps({"hookSpecificOutput": answer}))
        """,
    )
    kagent.manifest({"event": "PostToolUse", "command": "redact.py", "matcher": "bash"})
    kagent.script(bash(command), {"text": "thanks", "expect": r"mail \[email\]"})
    records, done = kagent.records()
    assert records[-1].get("result") == "thanks", done.stderr
    assert "ana@example.com" not in asked(records)[1].replace(command, "")


@pytest.mark.statement("KA4")
@pytest.mark.rule("kagent 1.3")
def test_a_hook_after_a_call_sees_and_changes_one_that_failed_too(kagent):
    kagent.file(
        "redact.py",
        """\
        #!/usr/bin/env python3
        import json, sys
        event = json.load(sys.stdin)
        assert (event["hook_event_name"], "mistake" in str(event["tool_response"])) == ("PostToolUse", True)
        answer = {"hookEventName": "PostToolUse", "updatedToolOutput": {"error": "[hidden]"}}
        print(json.dumps({"hookSpecificOutput": answer}))
        """,
    )
    kagent.manifest({"event": "PostToolUse", "command": "redact.py"})
    kagent.script(
        {"tools": [{"name": "read_file", "arguments": {"path": "mistake"}}]},
        {"text": "hm", "expect": r"Error: \[hidden\]"},
    )
    done = kagent.run(tools="read_file")
    assert (done.returncode, done.stdout) == (0, "hm\n"), done.stderr


@pytest.mark.rule("kagent 1.6")
def test_hooks_run_in_order_what_one_changes_the_next_sees_and_a_block_ends_the_walk(kagent):
    change = {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo changed"}}
    kagent.says("change.sh", {"hookSpecificOutput": change})
    kagent.file("seen.py", SEEN)
    kagent.says("stop.sh", {"decision": "block", "reason": "enough"})
    kagent.manifest(
        *({"command": command} for command in ("change.sh", "seen.py", "stop.sh", "seen.py last"))
    )
    records, done = kagent.records()
    assert done.returncode == 0, done.stderr
    assert [each["event"]["tool_input"] for each in kagent.seen()] == [{"command": "echo changed"}]
    assert [each["hook"] for each in records if each["record"] == "called"] == [
        "PreToolUse: change.sh",
        "PreToolUse: seen.py",
        "PreToolUse: stop.sh",
    ]


# Which calls it is asked about.


@pytest.mark.statement("KA27", "KA46", "KA47")
@pytest.mark.rule("kagent 1.5")
def test_a_matcher_is_searched_in_the_tool_s_name_and_none_fits_every_tool(kagent):
    kagent.file("seen.py", SEEN)
    fits = {
        "": ["bash", "list_files"],
        "bash|shell_exec": ["bash"],
        "as": ["bash"],
        "^list": ["list_files"],
        "Bash": [],
    }
    kagent.manifest(
        {"command": "seen.py none"},
        *({"command": f"seen.py '{matcher}'", "matcher": matcher} for matcher in fits),
    )
    kagent.script(bash("echo hello"), {"tools": [{"name": "list_files", "arguments": {}}]}, "done")
    done = kagent.run(tools="bash,list_files")
    assert done.returncode == 0, done.stderr
    asked_about = {matcher: [] for matcher in ("none", *fits)}
    for each in kagent.seen():
        asked_about[each["argv"][0]].append(each["event"]["tool_name"])
    assert asked_about == {"none": ["bash", "list_files"], **fits}
    assert "match 'Bash' fitted no tool call of this run" in " ".join(done.stderr.split())


@pytest.mark.statement("KA49", "KA50", "KA51")
@pytest.mark.rule("kagent 1.5")
def test_an_invalid_matcher_costs_that_hook_not_the_agent_and_is_on_record(kagent):
    kagent.file("seen.py", SEEN)
    kagent.manifest({"command": "seen.py", "matcher": "(bash"}, {"command": "seen.py second"})
    records, done = kagent.records()
    assert (done.returncode, records[-1]["result"]) == (0, "done"), done.stderr
    # The one with the mistake is not started; the other is.
    assert [each["argv"] for each in kagent.seen()] == [["second"]]
    broken = next(each for each in called(records, "seen.py") if each["error"])
    assert broken["action"] == "continue"
    for said in ("'(bash'", "'bash'", "missing )"):
        assert said in broken["error"]
    warned = " ".join(done.stderr.split())
    assert (
        "matcher '(bash' is not a regular expression, so it counts as not matching tool 'bash': missing )"
        in warned
    )
    # Who checks first is told, and told no.
    checked = kagent.hookline("check", "agent.yaml")
    assert checked.returncode == 2
    assert (
        "agent.yaml:6: spec.hooks[0].matcher: '(bash' is not a regular expression: missing )"
        in checked.stdout
    )


@pytest.mark.statement("KA11", "KA12", "KA6")
@pytest.mark.rule("kagent 1.3", "kagent 1.5")
def test_a_matcher_is_ignored_where_a_session_begins_and_ends(kagent):
    kagent.file(
        "notify.sh", '#!/bin/sh\ncat > /dev/null\necho "$HOOKLINE_POINT" >> "$HOOKLINE_CWD/told.txt"\n'
    )
    kagent.manifest(
        *(
            {"event": event, "command": "notify.sh", "matcher": "(nothing"}
            for event in ("SessionStart", "SessionEnd")
        )
    )
    done = kagent.run()
    assert done.returncode == 0, done.stderr
    assert (kagent.folder / "told.txt").read_text().split() == ["session.start", "session.end"]
    assert "SessionStart has no tool, so the matcher '(nothing' is ignored" in done.stderr


@pytest.mark.statement("KA12", "KA25")
@pytest.mark.rule("kagent 1.3")
def test_a_session_s_end_is_told_also_when_the_run_fails(kagent):
    kagent.file("seen.py", SEEN)
    kagent.manifest(*({"event": event, "command": "seen.py"} for event in ("SessionStart", "SessionEnd")))
    kagent.script({"error": "the model is gone"})
    for session in ([], ["--session=s1"]):
        assert kagent.run(*session).returncode == 1
    assert [each["event"]["hook_event_name"] for each in kagent.seen()] == ["SessionStart", "SessionEnd"] * 2


@pytest.mark.statement("KA3", "KA11")
def test_hooks_can_be_an_agent_s_memory(kagent):
    kagent.file(
        "recall.sh", '#!/bin/sh\ncat > /dev/null\ncat "$HOOKLINE_CWD/memory.txt" 2>/dev/null || true\n'
    )
    kagent.file(
        "remember.py",
        """\
        #!/usr/bin/env python3
        import json, os, sys
        event = json.load(sys.stdin)
        with open(os.path.join(os.environ["HOOKLINE_CWD"], "memory.txt"), "a") as memory:
            memory.write(f"You have run: {event['tool_input']['command']}\\n")
        """,
    )
    kagent.manifest(
        {"event": "SessionStart", "command": "recall.sh"}, {"event": "PostToolUse", "command": "remember.py"}
    )
    first, _ = kagent.records()
    second, done = kagent.records()
    assert done.returncode == 0, done.stderr
    assert "You have run: echo hello" not in asked(first)[0]
    assert "You have run: echo hello" in asked(second)[0]


# Sessions and limits, without the command line.


@pytest.fixture
def in_folder(kagent, monkeypatch):
    monkeypatch.chdir(kagent.folder)
    monkeypatch.setenv("KAGENT_HOOKS_FOLDER", str(kagent.folder / "hooks"))
    (kagent.folder / "hooks").mkdir()
    (kagent.folder / "hooks/h").symlink_to(kagent.image)
    return kagent


@pytest.mark.statement("KA11", "KA12", "KA25")
@pytest.mark.rule("kagent 1.3")
def test_a_session_begins_with_the_first_and_ends_with_the_last_use_of_its_id(in_folder):
    in_folder.file("seen.py", SEEN)
    in_folder.manifest(*({"event": event, "command": "seen.py"} for event in ("SessionStart", "SessionEnd")))

    async def two_turns():
        runner = LocalRunner()
        loaded = load("agent.yaml")
        loaded.agent.model = Scripted(["one", "two"])
        loaded.attach(runner, str(in_folder.folder / "hooks"))
        for question in ("first", "second"):
            await loaded.agent.run(question, session_id="s1", workspace=in_folder.folder)
            assert [each["event"]["hook_event_name"] for each in in_folder.seen()] == ["SessionStart"]
        await loaded.agent.close()
        await runner.close()

    asyncio.run(two_turns())
    assert [each["event"]["hook_event_name"] for each in in_folder.seen()] == ["SessionStart", "SessionEnd"]


@pytest.mark.rule("kagent 1.4")
def test_past_its_limit_a_hook_is_ended_with_all_it_started(in_folder, monkeypatch):
    in_folder.file("slow.sh", '#!/bin/sh\nsleep 600 &\necho $! > "$HOOKLINE_CWD/pid.txt"\nwait\n')
    in_folder.manifest({"command": "slow.sh"})

    async def asked_once():
        runner = LocalRunner()
        (hook,) = load("agent.yaml").agents[0][0].agent.hooks
        images = str(in_folder.folder / "hooks")
        assert live(hook, runner, os.environ, images, images).timeout == 30.0
        monkeypatch.setattr(kagent_load, "TIMEOUT", 2.0)
        made = live(hook, runner, os.environ, images, images)
        context = HookContext.of(
            Facts(workflow_id="a", point=Point.TOOL_START, current_tool="bash"), {}, None
        )
        with pytest.raises(HookBroke, match="ran past its limit of 2 s"):
            await made.handler(None, context)
        await runner.close()

    asyncio.run(asked_once())
    pid = int((in_folder.folder / "pid.txt").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


# Where images are.


@pytest.mark.rule("kagent 1.7")
def test_an_image_that_is_in_the_hooks_folder_already_is_not_fetched(in_folder):
    in_folder.file("seen.py", SEEN)
    in_folder.manifest({"command": "seen.py"})
    in_folder.hookline.environ["KAGENT_HOOKS_FOLDER"] = str(in_folder.folder / "hooks")
    done = in_folder.run(ref="")
    assert done.returncode == 0, done.stderr
    assert in_folder.seen()[0]["env"]["KAGENT_HOOKS_FOLDER"] == str(in_folder.folder / "hooks")
    assert "sha256:" not in done.stderr


@pytest.mark.parametrize(
    ("image", "code", "said"),
    [
        (f"{REF}=nowhere", 1, "nowhere"),
        (
            "ghcr.io/org/other:v1=image",
            2,
            f"no hook here has the image 'ghcr.io/org/other:v1'; images here: {REF}",
        ),
        (REF, 2, f"--image '{REF}' is not REF=SOURCE"),
    ],
)
def test_an_image_that_is_not_there_stops_the_run_before_it_begins(kagent, image, code, said):
    kagent.manifest({"command": "seen.py"})
    done = kagent.run(f"--image={image}", ref="")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.statement("KA44")
@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize(
    "ref", ["ghcr.io/org/h:v1; touch pwned", "ghcr.io/org/h:$(touch pwned)", "h:v1\nEOF\ntouch pwned"]
)
def test_what_a_reference_says_never_reaches_a_shell(kagent, ref):
    kagent.manifest({"command": "seen.py", "ref": ref})
    done = kagent.run(ref="")
    assert done.returncode == 2
    assert "is not an image reference" in done.stderr
    assert not (kagent.folder / "pwned").exists()


def test_one_image_from_the_folder_and_one_fetched_stand_side_by_side(in_folder):
    in_folder.file("seen.py", SEEN)
    in_folder.manifest({"command": "seen.py one"}, {"command": "seen.py two", "ref": "ghcr.io/org/more:v1"})
    in_folder.hookline.environ["KAGENT_HOOKS_FOLDER"] = str(in_folder.folder / "hooks")
    done = in_folder.run("--image=ghcr.io/org/more:v1=image", ref="")
    assert done.returncode == 0, done.stderr
    assert [each["argv"] for each in in_folder.seen()] == [["one"], ["two"]]


# Mistakes, and what is not to be had here.


@pytest.mark.rule("kagent 1.1")
def test_a_mistake_stops_the_run_and_every_one_is_told(kagent):
    kagent.manifest({"command": "a.sh", "event": "PreTool"}, {"command": "b.sh", "match": "bash"})
    done = kagent.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "spec.hooks[0].event: unknown event 'PreTool'; did you mean 'PreToolUse'?" in done.stderr
    assert "spec.hooks[1].match: unknown key; did you mean matcher?" in done.stderr
    assert "has 2 mistakes; nothing was run" in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "hooks: []\n",
            2,
            "this is not an agent; give a Python file with an Agent in it or a kagent Agent",
        ),
        ("apiVersion: kagent.dev/v1alpha2\nkind: Agent\n", 2, "metadata is missing"),
        (
            "apiVersion: kagent.dev/v1alpha2\nkind: ModelConfig\nmetadata: {name: m}\nspec: {model: x}\n",
            2,
            "there is no Agent in it",
        ),
        (
            "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: b}\nspec: {type: BYO, byo: {}}\n",
            2,
            "is of the type BYO: it is a program in an image, which a cluster starts",
        ),
    ],
)
def test_a_file_without_an_agent_that_runs_here_is_told(kagent, text, code, said):
    (kagent.folder / "odd.yaml").write_text(text)
    done = kagent.run(file="odd.yaml", ref="", tools="")
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_several_agents_are_told_apart_by_name(kagent):
    two = "---\napiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: second}\nspec: {declarative: {}}\n"
    kagent.manifest(more=two)
    kagent.script("hello")
    assert "several agents are in it: helper, second; name one" in kagent.run(ref="", tools="").stderr
    assert (
        "there is no agent 'third'; agents here: helper, second"
        in kagent.run(file="agent.yaml:third", ref="").stderr
    )
    assert kagent.run("-q", file="agent.yaml:second", ref="", tools="").stdout == "hello\n"


def test_a_model_that_is_not_in_the_file_is_asked_for(kagent):
    kagent.manifest({"command": "a.sh"})
    done = kagent.hookline("run", "agent.yaml", "go")
    assert done.returncode == 2
    assert (
        "the ModelConfig 'default-model-config' is not in this file; add it, or give --model" in done.stderr
    )


MODEL = """---
apiVersion: kagent.dev/v1alpha2
kind: ModelConfig
metadata: {name: default-model-config}
spec:
  provider: OpenAI
  model: gpt-4o
  apiKeySecret: kagent-openai
  apiKeySecretKey: TEAM_KEY
  openAI: {baseUrl: URL, temperature: "0.25"}
"""


def test_a_model_config_of_the_file_is_asked_with_the_key_from_the_environment(kagent):
    with FakeProvider([bash("echo hello"), "answered"]) as provider:
        kagent.manifest(declarative="{systemMessage: You help.}", more=MODEL.replace("URL", provider.openai))
        done = kagent.hookline(
            "run", "agent.yaml", "go", "--tools=bash", "--env=TEAM_KEY=sk-of-the-team", "-q"
        )
        assert (done.returncode, done.stdout) == (0, "answered\n"), done.stderr
        first = provider.requests[0]
    assert first.headers["authorization"] == "Bearer sk-of-the-team"
    assert (first.body["model"], first.body["temperature"]) == ("gpt-4o", 0.25)
    assert first.body["messages"][0] == {"role": "system", "content": "You help."}
    with FakeProvider(["another key"]) as provider:
        # The same model by the command line: its key is the provider's own.
        keys = ["--env=OPENAI_API_KEY=sk-mine", f"--env=OPENAI_BASE_URL={provider.openai}"]
        own = kagent.hookline("run", "agent.yaml", "go", "--model=openai/gpt-4o", *keys, "-q")
        assert (own.returncode, own.stdout) == (0, "another key\n"), own.stderr
        assert provider.requests[0].headers["authorization"] == "Bearer sk-mine"
    without = kagent.hookline("run", "agent.yaml", "go")
    assert without.returncode == 2
    assert "TEAM_KEY of the Secret 'kagent-openai' is neither in the environment nor" in without.stderr


SERVER = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked["method"], asked.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        result = {"tools": [{"name": name, "inputSchema": schema} for name in ("shell_exec", "wipe", "other")]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": f"ran {params['arguments']['command']}"}]}
    elif "id" in asked:
        # A client waits long for an answer to its first, newer word.
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
MCP = """---
apiVersion: kagent.dev/v1alpha1
kind: MCPServer
metadata: {name: shells}
spec:
  transportType: stdio
  deployment: {cmd: python3, args: [server.py]}
"""
TOOLS = [
    {
        "type": "McpServer",
        "mcpServer": {"kind": "MCPServer", "name": "shells", "toolNames": ["shell_exec", "wipe"], "requireApproval": ["wipe"]},
    }
]  # fmt: skip


def shell(name, command):
    return {"tools": [{"name": name, "arguments": {"command": command}}]}


@pytest.mark.statement("KA27", "KA5")
def test_tools_of_an_mcp_server_in_the_file_go_through_the_hooks(kagent):
    (kagent.folder / "server.py").write_text(SERVER)
    seed_image(kagent)
    kagent.manifest(
        {"command": "check-tool-use.sh", "matcher": "bash|shell_exec"},
        declarative=json.dumps({"tools": TOOLS}),
        more=MCP,
    )
    kagent.script(
        shell("shell_exec", "rm -rf build"), shell("shell_exec", "ls"), shell("other", "ls"), "done"
    )
    records, done = kagent.records(tools="")
    assert (done.returncode, records[-1]["result"]) == (0, "done"), done.stderr
    blocked, ran, unknown = results(records)
    assert blocked == {"error": "refused: nothing is deleted here"}
    assert "ran ls" in json.dumps(ran)
    assert "there is no tool 'other'" in json.dumps(unknown)


def test_a_guard_for_every_shell_holds_for_a_shell_of_an_mcp_server_too(kagent):
    (kagent.folder / "server.py").write_text(SERVER)
    (kagent.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: push, on: tool.start, match: kind:shell, python: 'hookline.guards:no_force_push'}\n"
    )
    only = [{"mcpServer": {"name": "shells", "toolNames": ["shell_exec"]}}]
    kagent.manifest(declarative=json.dumps({"tools": only}), more=MCP)
    kagent.script(shell("shell_exec", "git push -f"), "done")
    records, done = kagent.records("--hooks=hookline.yaml", ref="", tools="")
    assert done.returncode == 0, done.stderr
    assert [each["action"] for each in called(records, "push")] == ["block"]


@pytest.mark.rule("kagent 1.6")
def test_a_tool_that_requires_approval_is_asked_about_after_the_hooks(kagent):
    (kagent.folder / "server.py").write_text(SERVER)
    seed_image(kagent)
    kagent.manifest({"command": "check-tool-use.sh"}, declarative=json.dumps({"tools": TOOLS}), more=MCP)
    kagent.script(shell("wipe", "rm -rf /"), shell("wipe", "the floor"), "done")
    records, done = kagent.records(tools="")
    first, second = results(records)
    assert first == {"error": "refused: nothing is deleted here"}
    # The hook approves, and a person is still needed; here is none.
    assert "wipe needs approval" in json.dumps(second)
    asked_for = called(records, "requireApproval: shells")
    assert [each["action"] for each in asked_for] == ["ask"], done.stderr


def test_a_server_that_only_a_cluster_has_is_said_and_the_agent_runs_without(kagent):
    kagent.manifest(declarative="{tools: [{mcpServer: {kind: RemoteMCPServer, name: kagent-tool-server}}]}")
    kagent.script("I have no tools")
    done = kagent.run(ref="", tools="")
    assert (done.returncode, done.stdout) == (0, "I have no tools\n")
    assert (
        "the RemoteMCPServer 'kagent-tool-server' is not in this file, so its tools are left out"
        in done.stderr
    )
    done = kagent.hookline("check", "agent.yaml")
    assert done.returncode == 0, done.stdout
    assert (
        "warning: agent.yaml:5: spec.declarative.tools[0].mcpServer.name: the RemoteMCPServer" in done.stdout
    )
    assert kagent.hookline("check", "agent.yaml", "--strict").returncode == 2


def test_an_agent_of_the_file_that_is_a_tool_has_its_own_hooks(kagent):
    kagent.file("seen.py", SEEN)
    inner = {"ref": REF, "event": "PreToolUse", "command": "seen.py inner"}
    with FakeProvider([shell("shell_exec", "ls"), "inside"]) as provider:
        text = MODEL.replace("URL", provider.openai).replace("default-model-config", "m")
        text += f"""---
apiVersion: kagent.dev/v1alpha2
kind: Agent
metadata: {{name: inner}}
spec:
  declarative: {{modelConfig: m, tools: {json.dumps(TOOLS)}}}
  hooks: {json.dumps([inner, {**inner, "event": "SessionStart"}])}
"""
        (kagent.folder / "server.py").write_text(SERVER)
        kagent.manifest(
            {"command": "seen.py outer"},
            declarative="{tools: [{type: Agent, agent: {name: inner}}]}",
            more=MCP + text,
        )
        kagent.script({"tools": [{"name": "inner", "arguments": {"input": "look"}}]}, "outside")
        done = kagent.run("--env=TEAM_KEY=k", tools="")
    assert (done.returncode, done.stdout) == (0, "outside\n"), done.stderr
    seen = [
        (each["argv"][0], each["event"]["tool_name"], each["env"]["KAGENT_NAME"]) for each in kagent.seen()
    ]
    assert seen == [("outer", "inner", "helper"), ("inner", "shell_exec", "inner")]
    assert "SessionStart of 'inner' does not happen here" in " ".join(done.stderr.split())


# Looking before.


def test_explain_shows_the_hooks_their_limits_and_their_images(kagent):
    kagent.manifest({"command": "a.sh", "matcher": "bash"}, {"command": "b.sh", "event": "SessionEnd"})
    done = kagent.hookline("explain", "agent.yaml")
    assert done.returncode == 0, done.stderr
    assert "(kagent)" in done.stdout
    assert "PreToolUse: a.sh (command), for bash, limit 30 s, if it breaks: continue" in done.stdout
    assert "session.end\n  1. SessionEnd: b.sh" in done.stdout
    assert f"image {REF} is /hooks/h" in done.stdout


def test_try_asks_the_hooks_with_no_agent(kagent):
    seed_image(kagent)
    kagent.manifest({"command": "check-tool-use.sh", "matcher": "bash"})
    event = ("try", "tool.start", "agent.yaml", f"--image={REF}=image", "--tool=bash")
    refused = kagent.hookline(*event, '--input={"command": "rm -rf /"}')
    assert (refused.returncode, "= block: nothing is deleted here" in refused.stdout) == (1, True), (
        refused.stderr
    )
    assert kagent.hookline(*event, '--input={"command": "ls"}').returncode == 0


def test_check_looks_into_an_image_that_is_at_hand(kagent):
    kagent.file("plain.sh", "#!/bin/sh\n", executable=False)
    kagent.says("right.sh", {})
    kagent.manifest(
        *({"command": command} for command in ("right.sh", "gone.sh", "plain.sh", "python3 gone.py")),
        more=MODEL.replace("URL", "http://localhost/v1"),
    )
    kagent.hookline.environ["TEAM_KEY"] = "k"
    unseen = kagent.hookline("check", "agent.yaml")
    assert (unseen.returncode, f"image {REF}: not checked; give --image" in unseen.stdout) == (0, True), (
        unseen.stdout
    )
    done = kagent.hookline("check", "agent.yaml", f"--image={REF}=image")
    assert done.returncode == 2
    assert (
        f"gone.sh: it could not start: in the image {REF} 'gone.sh' is not there, nor on PATH" in done.stdout
    )
    assert "'plain.sh' is not executable" in done.stdout
    assert "python3 would run" in done.stdout
    assert "3 problems" in done.stdout


def test_check_looks_at_every_agent_of_a_file_and_tells_each_mistake_once(kagent):
    kagent.says("right.sh", {})
    second = "---\napiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: second}\nspec:\n"
    second += "  declarative: {modelConfig: gone}\n  hooks: [{ref: r, event: Stop, command: c}]\n"
    broken = "---\napiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: third}\n"
    kagent.manifest({"command": "right.sh"}, more=second + broken)
    done = kagent.hookline("check", "agent.yaml", f"--image={REF}=image")
    assert done.returncode == 2
    told = [line.removeprefix("warning: ").partition(": ")[2] for line in done.stdout.splitlines()[:-1]]
    assert told == [
        "spec.declarative.modelConfig: the ModelConfig 'default-model-config' is not in this file; add it,"
        " or give --model provider/name",
        "spec.declarative.modelConfig: the ModelConfig 'gone' is not in this file; add it,"
        " or give --model provider/name",
        "spec.hooks[0].event: unknown event 'Stop'; Stop is an event of claude",
        "spec is missing; it has the agent's type, declarative and hooks",
    ]


def test_a_manifest_given_as_a_file_of_hooks_is_told_apart(kagent):
    kagent.manifest({"command": "a.sh"})
    done = kagent.hookline("run", "agent.py", "go", "--hooks", "agent.yaml")
    assert done.returncode == 2
    assert "this is an agent with its own hooks (hookline run agent.yaml)" in done.stderr


def test_tools_of_the_command_line_are_for_manifests(kagent):
    done = kagent.hookline("run", "agent.py", "go", "--tools=bash")
    assert (done.returncode, "--tools is for manifests" in done.stderr) == (2, True)
    kagent.manifest()
    assert "there is no ready tool 'bsh'" in kagent.run(ref="", tools="bsh").stderr
