"""The four hooks: real shells in real workspaces, with what they are given, what becomes of their output, and limits."""

import asyncio
import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import OnError, settled_on_error
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Status
from hookline.engine.result import HookAction
from hookline.errors import HookBroke
from hookline.journal.masking import Mask
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner
from hookline.secrets import without
from hookline.symphony.hooks import (
    KEPT,
    LOGGED,
    AttemptSite,
    Outputs,
    Scene,
    fields,
    shortened,
    workspace_hooks,
)
from hookline.symphony.read import Workflow
from hookline.symphony.settings import POINTS, HookScripts, Script
from hookline.symphony.workspace import WorkspaceRoot
from tests.symphony.scenes import ISSUE, PATH, until


@pytest.fixture
async def runner():
    runner = LocalRunner()
    yield runner
    await runner.close()
    assert tagged.carriers(runner.mark.encode()) == {}


@pytest.fixture
def root(tmp_path):
    with WorkspaceRoot(str(tmp_path / "ws")) as opened:
        yield opened


class Bench:
    """One hook's script, run at its point."""

    def __init__(
        self, root: WorkspaceRoot, runner: LocalRunner, folder: Path, identifier: str = "ABC-123"
    ) -> None:
        self.workspace = root.finish(root.begin(identifier, issue_id="u-1", run_id="w1"))
        self.scene = Scene(issue=ISSUE, workspace=self.workspace)
        self.hooks = HookScripts()
        self.site = AttemptSite(
            current=lambda: Workflow(file="WORKFLOW.md", hooks=self.hooks),
            root=root,
            runner=runner,
            environ={"PATH": PATH, "HOME": str(folder / "home"), "USER": "ann", "SET_BEFORE": "yes"},
            outputs=Outputs(folder / "outputs"),
        )

    def given(self, name: str, script: str, **rest) -> None:
        self.hooks = replace(self.hooks, **{name: Script(text=script, line=7)}, **rest)

    async def fire(self, name: str, script: str, status: Status | None = None, **rest):
        self.given(name, script, **rest)
        facts = Facts(
            workflow_id="ABC-123", run_id="r1", scope_id="1", point=POINTS[name], status=status, attempt=2
        )
        pipeline = Pipeline(workspace_hooks(self.site, self.scene))
        return await pipeline.fire(HookContext.of(facts, {"issue": {"id": "u-1"}}, None))

    async def broke(self, name: str, script: str, **rest) -> HookBroke:
        self.given(name, script, **rest)
        facts = Facts(workflow_id="ABC-123", run_id="r1", scope_id="1", point=POINTS[name])
        with pytest.raises(HookBroke) as told:
            await self.site.run_script(name, self.scene, HookContext.of(facts, None, None))
        return told.value

    def file(self, name: str) -> str:
        return Path(self.workspace.path, name).read_text()


@pytest.fixture
def bench(root, runner, tmp_path):
    (tmp_path / "home").mkdir()
    return Bench(root, runner, tmp_path)


@pytest.mark.rule("W23")
@pytest.mark.statement("SC1", "SC40", "SC41", "SW14", "SW15")
@pytest.mark.parametrize("name", POINTS)
async def test_each_is_given_to_sh_as_a_login_shell_in_the_workspace(bench, name):
    outcome = await bench.fire(name, 'pwd > seen\ntr "\\0" "\\n" < /proc/$$/cmdline > argv', Status.OK)
    assert outcome.action is HookAction.CONTINUE
    assert bench.file("seen").strip() == bench.workspace.path
    assert bench.file("argv").splitlines()[:2] == ["sh", "-lc"]


@pytest.mark.rule("W26")
@pytest.mark.statement("SC43", "SC44", "SC45")
async def test_the_environment_is_inherited_and_the_profile_read(bench, tmp_path):
    (tmp_path / "home/.profile").write_text("export FROM_PROFILE=read\n")
    await bench.fire("before_run", 'echo "$HOME|$USER|$PATH|$SET_BEFORE|$FROM_PROFILE" > seen')
    home, user, path, before, profile = bench.file("seen").strip().split("|")
    assert (home, user, before, profile) == (str(tmp_path / "home"), "ann", "yes", "read")
    assert "/bin" in path


@pytest.mark.rule("W26", "C11")
@pytest.mark.statement("SW16", "SW17")
async def test_workspace_and_issue_are_told_under_both_names(bench):
    bench.scene = replace(bench.scene, attempt=1)
    await bench.fire("after_run", "env > seen; cat > context", Status.TIMED_OUT)
    seen = dict(line.split("=", 1) for line in bench.file("seen").splitlines() if "=" in line)
    for prefix in ("HOOKLINE_", "SYMPHONY_"):
        assert {
            key: seen[prefix + key] for key in ("ISSUE_ID", "ISSUE_IDENTIFIER", "ISSUE_TITLE", "ISSUE_STATE")
        } == {
            "ISSUE_ID": "u-1",
            "ISSUE_IDENTIFIER": "ABC-123",
            "ISSUE_TITLE": "Mend the fence",
            "ISSUE_STATE": "Todo",
        }
        assert (seen[prefix + "WORKSPACE"], seen[prefix + "HOOK"]) == (bench.workspace.path, "after_run")
        assert seen[prefix + "OUTCOME"] == "timed_out"
    assert seen["SYMPHONY_WORKSPACE_PATH"] == seen["PWD"] == seen["HOOKLINE_CWD"] == bench.workspace.path
    assert (seen["HOOKLINE_POINT"], seen["HOOKLINE_STATUS"]) == ("run.end", "timed_out")
    assert (seen["HOOKLINE_ATTEMPT"], seen["SYMPHONY_ATTEMPT"]) == ("2", "1")
    assert json.loads(bench.file("context"))["current_payload"] == {"issue": {"id": "u-1"}}


async def test_an_ending_that_only_we_have_a_word_for_is_told(bench):
    bench.scene = replace(bench.scene, outcome=lambda: "stalled")
    await bench.fire("after_run", 'echo "$SYMPHONY_OUTCOME $HOOKLINE_STATUS" > seen', Status.TIMED_OUT)
    assert bench.file("seen") == "stalled timed_out\n"
    await bench.fire("before_run", 'echo "<$SYMPHONY_OUTCOME>" > seen')
    assert bench.file("seen") == "<>\n"


async def test_what_is_around_us_does_not_pass_for_the_issue(bench):
    env = {
        **bench.site.environ,
        "SYMPHONY_ISSUE_URL": "of another",
        "HOOKLINE_OUTCOME": "old",
        "SYMPHONY_ATTEMPT": "9",
    }
    bench.site = replace(bench.site, environ=env)
    bench.scene = replace(bench.scene, issue=replace(ISSUE, url=None))
    await bench.fire(
        "after_create",
        'echo "<$SYMPHONY_ISSUE_URL$HOOKLINE_OUTCOME$SYMPHONY_ATTEMPT$HOOKLINE_ATTEMPT>" > seen',
    )
    assert bench.file("seen") == "<>\n"


@pytest.mark.parametrize(
    "title", ["$(touch /tmp/pwned)", "a\0b", "'; rm -rf /", "x" * 200_000, "\ud800", "é" * 5000]
)
async def test_a_title_is_only_text(bench, title):
    bench.scene = replace(bench.scene, issue=replace(ISSUE, title=title))
    await bench.fire("before_run", 'printf %s "$SYMPHONY_ISSUE_TITLE" > seen')
    seen = Path(bench.workspace.path, "seen").read_bytes()
    assert len(seen) <= 4096
    assert seen.decode()[:4] == title.replace("\0", "").encode("utf-8", "replace").decode()[:4]


@pytest.mark.rule("W30", "C11")
async def test_secrets_of_the_tracker_are_not_handed_on_by_name_value_or_profile(bench, tmp_path):
    (tmp_path / "home/.profile").write_text("export LINEAR_API_KEY=lin_0123456789 AGAIN=x\n")
    env = {
        **bench.site.environ,
        "LINEAR_API_KEY": "lin_0123456789",
        "COPY": "lin_0123456789",
        "SHORT": "lin",
    }
    bench.site = replace(bench.site, environ=env, secret_names=frozenset({"LINEAR_API_KEY", "UNSET_ONE"}))
    await bench.fire("before_run", "env > seen")
    assert "lin_0123456789" not in bench.file("seen")
    assert "SHORT=lin" in bench.file("seen")
    assert "AGAIN=x" in bench.file("seen")


def test_a_short_secret_does_not_take_others_along():
    assert without({"KEY": "1", "FLAG": "1"}, frozenset({"KEY"})) == {"FLAG": "1"}


@pytest.mark.rule("W24", "W29")
@pytest.mark.statement("SC6", "SC13", "SC22", "SC31", "SC46", "SW3", "SW4", "SW5", "SW6", "SW19")
@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("after_create", HookAction.FAIL),
        ("before_run", HookAction.FAIL),
        ("after_run", HookAction.CONTINUE),
        ("before_remove", HookAction.CONTINUE),
    ],
)
async def test_any_code_but_zero_is_a_failure_with_that_hooks_own_rule(bench, caplog, name, action):
    caplog.set_level(logging.INFO, "hookline.symphony")
    outcome = await bench.fire(name, "echo no luck; exit 3", Status.OK)
    assert outcome.action is action
    (line,) = [
        each.getMessage()
        for each in caplog.records
        if "failed" in each.getMessage() and "hook=" in each.getMessage()
    ]
    assert f"issue_id=u-1 issue_identifier=ABC-123 hook={name}" in line
    for part in ("status=3", 'output="no luck"', "duration="):
        assert part in line
    assert (await bench.fire(name, "exit 0", Status.OK)).action is HookAction.CONTINUE


@pytest.mark.rule("C5", "W25", "W29")
@pytest.mark.statement("SC34", "SC36", "SC37", "SC38")
@pytest.mark.parametrize("name", POINTS)
async def test_past_the_limit_the_whole_tree_is_killed_and_it_counts_as_failed(bench, runner, caplog, name):
    caplog.set_level(logging.INFO, "hookline.symphony")
    outcome = await bench.fire(name, "sleep 300 & setsid sleep 300 & sleep 300", Status.OK, timeout=0.3)
    assert tagged.carriers(runner.mark.encode()) == {}
    hook = next(each for each in workspace_hooks(bench.site, bench.scene) if each.name == name)
    assert outcome.action.value == settled_on_error(hook, POINTS[name])
    assert settled_on_error(hook, POINTS[name]) is (
        OnError.FAIL if POINTS[name].is_start else OnError.CONTINUE
    )
    assert any(
        "timeout_ms=300" in each.getMessage() and "timed out" in each.getMessage() for each in caplog.records
    )


@pytest.mark.rule("W29")
@pytest.mark.statement("SW24", "SW25")
async def test_failure_and_timeout_are_told_apart_with_what_can_be_done(bench):
    late = await bench.broke("after_run", "echo begun; sleep 300", timeout=3.0)
    assert late.kind == "timed_out"
    assert "ran past its limit of 3 s: begun" in str(late)
    assert "Raise hooks.timeout_ms" in str(late)
    failed = await bench.broke("after_create", "no-such-tool-here", timeout=60.0)
    assert failed.kind == "exit"
    assert "exited with 127" in str(failed)
    assert "hookline try workspace.start WORKFLOW.md" in str(failed)


@pytest.mark.statement("SC42")
async def test_errors_stand_between_the_other_lines(bench):
    assert "exited with 1: one\ntwo\nthree\n" in str(
        await bench.broke("before_run", "echo one; echo two >&2; echo three; exit 1")
    )


@pytest.mark.rule("W27", "C6", "W28")
@pytest.mark.statement("SC49", "SW22", "SW26", "SW27", "SW28")
async def test_the_log_has_2048_bytes_and_a_file_the_whole(bench, caplog):
    caplog.set_level(logging.INFO, "hookline.symphony")
    error = await bench.broke("before_run", "seq 1 5000; exit 1")
    whole = "\n".join(str(number) for number in range(1, 5001))
    kept = bench.site.outputs.folder / "r1.before_run.log"
    assert kept.read_text().strip() == whole
    assert kept.stat().st_mode & 0o077 == 0
    assert f"whole output: {kept}" in str(error)
    line = next(
        each.getMessage()
        for each in caplog.records
        if "hook=before_run" in each.getMessage() and "failed" in each.getMessage()
    )
    shown = line.split('output="')[1].split('"')[0]
    head, missing, tail = shown.split("...")
    assert head.startswith("1\\n2\\n3")
    assert tail.endswith("4999\\n5000")
    assert len((head + tail).replace("\\n", "\n")) <= LOGGED + 4
    assert "bytes left out" in missing
    assert "\n" not in line


@pytest.mark.rule("W27")
@pytest.mark.parametrize("letter", ["é", "🐛", "a"])
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_no_character_is_cut_in_half(letter, shift):
    text = shortened("x" * shift + letter * 3000)
    assert "\ufffd" not in text
    head, _, tail = text.split("...")
    assert set(head.strip()) <= {"x", letter}
    assert len((head + tail).encode()) <= LOGGED + 2
    assert shortened("short\n") == "short"


@pytest.mark.rule("W27", "W30")
async def test_secrets_are_masked_before_the_cut_wherever_they_are_told(bench, caplog):
    secret = "s3cret-" + "v" * 40
    bench.site = replace(bench.site, mask=Mask([secret]))
    caplog.set_level(logging.DEBUG, "hookline.symphony")
    # It lies across the place where the beginning is cut off.
    script = f"printf %01010d 0; echo; echo {secret}; seq 1 3000; exit 1"
    error = await bench.broke("before_run", script)
    kept = (bench.site.outputs.folder / "r1.before_run.log").read_text()
    for text in (str(error), kept, caplog.text):
        assert "vvvv" not in text
        assert "s3cret" not in text
    assert "***" in kept


async def test_output_that_is_no_text_harms_nothing(bench, caplog):
    caplog.set_level(logging.INFO, "hookline.symphony")
    error = await bench.broke("before_run", r"printf '\377\376\000\033[31m'; exit 1")
    assert "exited with 1" in str(error)
    assert "\033" not in "".join(each.getMessage() for each in caplog.records if "hook=" in each.getMessage())


async def test_a_flood_of_output_is_kept_at_both_ends_and_the_file_says_so(bench):
    await bench.fire("before_run", "echo first; head -c 100000000 /dev/zero | tr '\\0' 'x'; echo; echo last")
    kept = (bench.site.outputs.folder / "r1.before_run.log").read_bytes()
    assert len(kept) < KEPT + 100
    assert kept.startswith(b"first\n")
    assert kept.endswith(b"last\n")
    assert b"bytes left out" in kept


async def test_where_the_output_cannot_be_kept_the_hook_goes_well_all_the_same(bench, tmp_path, caplog):
    (tmp_path / "outputs").write_text("a file")
    outcome = await bench.fire("before_run", "echo hello")
    assert outcome.action is HookAction.CONTINUE
    assert "cannot be kept" in caplog.text


def test_old_outputs_go(tmp_path):
    old = tmp_path / "old.log"
    old.touch()
    os.utime(old, (time.time() - 40 * 86400,) * 2)
    Outputs(tmp_path).keep("new.log", "x")
    assert os.listdir(tmp_path) == ["new.log"]


def test_of_too_many_outputs_the_oldest_go(tmp_path):
    for age in (1, 2, 3):
        file = tmp_path / f"{age}.log"
        file.write_text("x" * 100)
        os.utime(file, (time.time() - age * 3600,) * 2)
    Outputs(tmp_path, keep_bytes=250).keep("new.log", "x")
    assert sorted(os.listdir(tmp_path)) == ["1.log", "2.log", "new.log"]


@pytest.mark.rule("W28", "M77")
@pytest.mark.statement("SW22")
async def test_start_end_and_duration_are_logged_with_the_issue(bench, caplog):
    caplog.set_level(logging.INFO, "hookline.symphony")
    await bench.fire("before_run", "true")
    started, ended = [each.getMessage() for each in caplog.records if "hook=before_run" in each.getMessage()]
    for line in (started, ended):
        assert (
            f"issue_id=u-1 issue_identifier=ABC-123 hook=before_run workspace={bench.workspace.path}" in line
        )
    assert "duration=" in ended


def test_a_value_in_the_log_cannot_begin_another_line_or_field():
    assert fields(a="x y", b='q"\n\x1b', c=None, d="plain-1.2/3") == 'a="x y" b="q\\"\\n\\x1b" d=plain-1.2/3'


@pytest.mark.rule("W32")
@pytest.mark.statement("SC51", "SC52", "SC53", "SC54", "SW13")
async def test_a_running_hook_ends_with_what_it_started_with_and_the_next_has_the_new(bench):
    going = asyncio.ensure_future(
        bench.fire(
            "before_run",
            "touch begun; while [ ! -e go ]; do sleep 0.01; done; echo old >> order",
            timeout=60.0,
        )
    )
    await until(lambda: Path(bench.workspace.path, "begun").exists())
    bench.given("before_run", "echo new >> order; sleep 300", timeout=0.2)
    await asyncio.sleep(0.4)
    assert not going.done()
    Path(bench.workspace.path, "go").touch()
    assert (await going).action is HookAction.CONTINUE
    late = await bench.broke("before_run", "echo new >> order; sleep 300", timeout=3.0)
    assert late.kind == "timed_out"
    assert bench.file("order") == "old\nnew\n"


@pytest.mark.rule("W32")
async def test_hooks_made_before_a_change_take_the_script_of_the_moment(bench):
    hooks = workspace_hooks(bench.site, bench.scene)
    bench.given("before_run", "echo changed > seen")
    facts = Facts(workflow_id="w", run_id="r", point=Point.RUN_START)
    await Pipeline(hooks).fire(HookContext.of(facts, None, None))
    assert bench.file("seen") == "changed\n"


async def test_a_hook_without_a_script_is_not_called(bench):
    outcome = await bench.fire("before_run", "exit 1")
    assert outcome.action is HookAction.FAIL
    bench.hooks = HookScripts()
    calls = []
    from hookline.engine.pipeline import Recorder

    pipeline = Pipeline(workspace_hooks(bench.site, bench.scene), Recorder(None, [calls.append]))
    facts = Facts(workflow_id="w", run_id="r", point=Point.RUN_START)
    assert (await pipeline.fire(HookContext.of(facts, None, None))).action is HookAction.CONTINUE
    assert calls == []


@pytest.mark.statement("SC39")
async def test_a_hook_that_hangs_holds_up_nothing_else(bench, tmp_path):
    going = asyncio.ensure_future(bench.fire("before_run", "touch begun; sleep 300", timeout=300.0))
    await until(lambda: Path(bench.workspace.path, "begun").exists())
    other = Bench(bench.site.root, bench.site.runner, tmp_path, "ABC-124")
    assert (await other.fire("before_run", "true")).action is HookAction.CONTINUE
    assert not going.done()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_a_child_left_in_the_background_does_not_make_a_success_a_timeout(bench):
    outcome = await bench.fire("before_run", "sleep 300 & exit 0", timeout=60.0)
    assert outcome.action is HookAction.CONTINUE


@pytest.mark.statement("SC21", "SC30")
async def test_where_the_workspace_is_gone_the_hook_does_not_start_elsewhere(bench, tmp_path):
    os.rmdir(bench.workspace.path)
    error = await bench.broke("after_run", f"pwd > {tmp_path}/seen")
    assert error.kind == "not_started"
    assert "is not there any more" in str(error)
    assert not (tmp_path / "seen").exists()


async def test_a_link_put_in_the_workspaces_place_is_not_entered(bench, tmp_path):
    (tmp_path / "outside").mkdir()
    os.rmdir(bench.workspace.path)
    os.symlink(tmp_path / "outside", bench.workspace.path)
    assert "is a link" in str(await bench.broke("after_run", "touch seen"))
    assert os.listdir(tmp_path / "outside") == []


class Swapping:
    """A runner before whose every start somebody puts a link in the workspace's place."""

    def __init__(self, runner: LocalRunner, workspace: str, target: Path) -> None:
        self.runner, self.workspace, self.target = runner, workspace, target

    async def run(self, order):
        os.rename(self.workspace, f"{self.workspace}.moved")
        os.symlink(self.target, self.workspace)
        return await self.runner.run(order)

    async def close(self) -> None:
        await self.runner.close()


@pytest.mark.rule("W18")
async def test_a_link_swapped_in_between_check_and_start_is_not_entered(bench, runner, tmp_path):
    (tmp_path / "outside").mkdir()
    swapping = Swapping(runner, bench.workspace.path, tmp_path / "outside")
    bench.site = replace(bench.site, runner=swapping)
    outcome = await bench.fire("before_run", "touch seen")
    assert outcome.action is HookAction.CONTINUE
    assert os.listdir(tmp_path / "outside") == []
    assert os.listdir(f"{bench.workspace.path}.moved") == ["seen"]
