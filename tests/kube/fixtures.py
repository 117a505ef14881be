"""A cluster for the tests that need a real one, and a namespace of its own for each of them."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from hookline.kube.objects import ACCOUNT, NAMESPACE
from hookline.kube.operator import crds
from tests.kube.kubectl import Kubectl

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def kubeconfig(worker: int | None) -> Generator[str]:
    """The cluster that is given, or one for each worker that goes with it. Without workers it stays for the next time."""
    if given := os.environ.get("KUBECONFIG"):
        yield given
        return
    program = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not program:
        pytest.skip(
            "no Kubernetes: set KUBECONFIG, or HOOKLINE_TEST_CLUSTER to a program that starts one with `up`"
        )
    if worker:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        home = os.environ.get("HOOKLINE_KUBE_HOME") or f"{cache}/hookline-kube"
        os.environ["HOOKLINE_KUBE_HOME"] = f"{home}-{worker}"
    done = subprocess.run([program, "up"], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"`{program} up` ended with {done.returncode}"
    yield done.stdout.strip()
    if worker is not None:
        subprocess.run([program, "down"], check=True)


@pytest.fixture
async def cluster(kubeconfig):
    from hookline.kube.client import Cluster

    async with Cluster(kubeconfig) as made:
        yield made


@pytest.fixture
async def namespace(cluster):
    """A namespace that nobody else uses; it goes with all that is in it."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # No pod is taken before this account is there, which the cluster makes a moment later.
    async with asyncio.timeout(120):
        while await cluster.get(ACCOUNT, "default", name) is None:
            await asyncio.sleep(0.05)
    yield name
    await cluster.delete(NAMESPACE, name)


IMAGE = "localhost/hookline:test"
BUSYBOX = "localhost/busybox:1.35"


@pytest.fixture(scope="session")
def image(kubeconfig) -> str:
    """hookline's own image, as the cluster can have it."""
    if given := os.environ.get("HOOKLINE_TEST_IMAGE"):
        return given
    program = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not program:
        pytest.skip("no image: set HOOKLINE_TEST_IMAGE to hookline's, or HOOKLINE_TEST_CLUSTER")
    made = subprocess.run(
        [sys.executable, ROOT / "deploy/test-image", program, IMAGE],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert made.returncode == 0, "deploy/test-image failed; its output is above"
    return made.stdout.strip()


@pytest.fixture(scope="session")
def operated(kubeconfig, image, tmp_path_factory) -> Kubectl:
    """A cluster with hookline installed as the guide does it; the client for it."""
    kubectl = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl"))
    printed = subprocess.run(
        [
            sys.executable,
            "-m",
            "hookline",
            "operator",
            "manifest",
            "--image",
            image,
            "--prepare-as-root",
            "--all-namespaces",
        ],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    kubectl.define(crds())
    kubectl.well("apply", given=[each for each in yaml.safe_load_all(printed) if each])
    # The image may be another one under the same name.
    kubectl.well("rollout", "restart", "deployment/hookline-operator", "-n", "hookline-system")
    kubectl.well(
        "rollout", "status", "deployment/hookline-operator", "-n", "hookline-system", "--timeout=180s"
    )
    return kubectl
