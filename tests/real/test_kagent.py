"""The seed's manifest with its image out of Debian's docker-registry, filled by skopeo."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.kagent.make_layout import layout
from tests.programs import installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/kagent"
REF = "ghcr.io/org/security-hooks:v1.0"
CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="module", autouse=True)
def tools():
    installed(**{name: name for name in ("skopeo", "docker-registry")})


@pytest.fixture
def registry(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "registry.yml").write_text(CONFIG.format(folder=tmp_path / "store", port=port))
    with (tmp_path / "registry.log").open("w") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", tmp_path / "registry.yml"], stdout=log, stderr=log
        )
        try:
            wait_for(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def wait_for(port, process):
    for _ in range(3000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert process.poll() is None, "docker-registry ended"
            time.sleep(0.01)
        else:
            return
    raise AssertionError("docker-registry does not answer")


@pytest.mark.statement("KA13", "KA17", "KA26")
def test_the_seed_s_manifest_runs_with_its_image_out_of_a_registry(tmp_path, registry):
    layout(EXAMPLE / "security-hooks", tmp_path / "layout", tag="v1.0")
    target = f"docker://{registry}/org/security-hooks:v1.0"
    subprocess.run(
        [
            "skopeo",
            "--insecure-policy",
            "copy",
            "--dest-tls-verify=false",
            f"oci:{tmp_path}/layout:v1.0",
            target,
        ],
        check=True,
        capture_output=True,
    )
    environ = {**os.environ, "HOOKLINE_HOME": str(tmp_path / "home"), "COLUMNS": "100"}
    environ.pop("KAGENT_HOOKS_FOLDER", None)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hookline", "run", EXAMPLE / "hooks.yaml", "tidy up", "--tools", "bash"),
            *("--model", f"scripted/{EXAMPLE}/scripts/tidy.yaml"),
            *("--image", f"{REF}={registry}/org/security-hooks:v1.0"),
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "I may not delete build, so it goes to trash/.\n"), (
        done.stderr
    )
    assert "blocked: rm -rf is not allowed here" in done.stderr
    assert "tells the model: Session " in done.stderr
    assert done.stderr.count(f"image {REF} is sha256:") == 1
