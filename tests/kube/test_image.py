"""hookline's own image, as a cluster runs it: nobody's account, nothing to write to but /tmp."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hookline.kube.operator import all_objects, crds
from hookline.options import Installation
from tests.kube.kubectl import Kubectl

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
NAME = "localhost/hookline:test-image"


@pytest.fixture(scope="module")
def image(kubeconfig):
    program = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not program:
        pytest.skip("no program to load images with: set HOOKLINE_TEST_CLUSTER")
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "test-image", program, NAME],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_operators_own_container_starts_hookline(image, kubeconfig, tmp_path):
    deployment = all_objects(Installation(image=image))[-1]
    pod = deployment["spec"]["template"]["spec"]
    del pod["serviceAccountName"]
    (container,) = pod["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        del container[probe]
    container["args"] = ["operator", "manifest", "--image", image]
    given = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "once"},
        "spec": {**pod, "restartPolicy": "Never"},
    }
    with Kubectl(kubeconfig, tmp_path).namespace() as kubectl:
        kubectl.well("create", given=given)
        kubectl.ended("once")
        assert list(yaml.safe_load_all(kubectl.well("logs", "once"))) == [
            *crds(),
            *all_objects(Installation(image=image)),
        ]
