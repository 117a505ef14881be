"""`image:` hooks of a hookline.yaml, from the file to the verdict."""

import json

import pytest

from hookline.engine.context import HookContext
from hookline.engine.pipeline import Pipeline
from hookline.hookfile.attach import attached
from hookline.runners.container import ContainerRunner
from hookline.runners.local import LocalRunner
from hookline.runners.places import EnclosedRunner
from hookline.runners.process import ProcessRunner
from hookline.runners.sandbox import SandboxRunner
from tests.runners.places import IMAGE

pytestmark = pytest.mark.timeout(300)


def file_of(folder, entry: str):
    file = folder / "hookline.yaml"
    file.write_text(f"hooks:\n  - name: guard\n    on: tool.start\n    {entry}\n")
    return file


async def outcome(file, runner):
    found = attached(file, runner)
    assert found.problems == []
    context = HookContext(
        workflow_id="w", point="tool.start", run_id="r1", current_tool="bash", current_payload={"a": 1}
    )
    try:
        return await Pipeline(found.hooks).fire(context)
    finally:
        await runner.close()


async def test_without_an_engine_an_image_hook_breaks_and_never_runs_as_something_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = file_of(tmp_path, f"image: {IMAGE}\n    command: [/bin/touch, {tmp_path}/ran]")
    runner = LocalRunner()
    found = attached(file, runner)
    assert found.problems == []
    assert any("podman or docker" in str(doubt) for doubt in found.doubts)
    told = await outcome(file, runner)
    assert told.stopped
    assert "could not start: containers need podman or docker" in told.reason
    assert not (tmp_path / "ran").exists()


async def test_a_runner_that_can_have_no_containers_starts_no_image(tmp_path):
    told = await outcome(file_of(tmp_path, f"image: {IMAGE}"), ProcessRunner())
    assert told.stopped
    assert "an image needs --on container, local or sandbox; this is ProcessRunner" in told.reason


@pytest.mark.real
@pytest.mark.parametrize(
    "make",
    [
        LocalRunner,
        SandboxRunner,
        lambda: EnclosedRunner(SandboxRunner()),
        lambda: EnclosedRunner(ContainerRunner(pull="never"), image="localhost/hookline-none:test"),
    ],
    ids=["local", "sandbox", "in the sandbox", "in a container"],
)
async def test_an_image_hook_runs_its_image_wherever_the_other_hooks_run(
    image, bubblewrap, tmp_path, monkeypatch, make
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OURS", "not-for-hooks")
    script = "cat > given; env > seen; exit 0"
    file = file_of(tmp_path, f"image: {IMAGE}\n    command: [sh, -c, '{script}']\n    env: {{EXTRA: more}}")
    assert not (await outcome(file, make())).stopped
    given = HookContext.from_dict(json.loads((tmp_path / "given").read_text()))
    assert (given.current_tool, given.run_id) == ("bash", "r1")
    seen = (tmp_path / "seen").read_text().splitlines()
    assert {
        "EXTRA=more",
        "HOOKLINE_POINT=tool.start",
        "HOOKLINE_TOOL=bash",
        "HOOKLINE_CWD=/workspace",
    } <= set(seen)
    assert "OURS=not-for-hooks" not in seen


@pytest.mark.real
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (f"image: {IMAGE}\n    command: sh -c 'echo bad; exit 2'", "exited with 2: bad"),
        (f"image: {IMAGE}\n    command: sleep 60\n    timeout: 2s", "ran past its limit of 2 s"),
        (f"image: {IMAGE}\n    command: no-such", "could not start"),
    ],
)
async def test_an_image_hook_that_does_not_exit_with_0_broke(image, tmp_path, monkeypatch, entry, reason):
    monkeypatch.chdir(tmp_path)
    told = await outcome(file_of(tmp_path, entry), LocalRunner())
    assert told.stopped
    assert reason in told.reason


@pytest.mark.real
async def test_without_a_command_the_images_own_program_gets_the_arguments(image, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not (
        await outcome(file_of(tmp_path, f"image: {IMAGE}\n    args: [and, more]"), LocalRunner())
    ).stopped
