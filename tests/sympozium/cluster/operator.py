"""An operator with a short lease for crash rounds: `python -m tests.sympozium.cluster.operator KUBECONFIG IMAGE NAMESPACE SECONDS`.

Its lease is in the namespace that it works in, so that no other operator of the cluster has to do with it.
"""

import asyncio
import logging
import shlex
import sys

from hookline.kube.client import Cluster
from hookline.kube.operator import serve
from hookline.options import OperatorOptions
from hookline.sympozium.cluster.controller import AgentRunController

# One that was asked to skip does what the built-in agent does; others tell that they run, and do as they are told.
AGENT = (
    "sh",
    "-c",
    "if [ -e /ipc/control/skip ]; then exec python3 -P -m hookline.sympozium.run.program; fi; "
    'trap "exit 143" TERM; eval "$WORK"; echo done',
)


async def operate(kubeconfig: str, image: str, namespace: str, seconds: int) -> None:
    settings = OperatorOptions(
        image=image, agent_command=shlex.join(AGENT), prepare_as_root=True, max_run_history=1000
    )
    async with Cluster(kubeconfig) as cluster:
        await serve(
            cluster,
            lambda cluster, journal: [AgentRunController(cluster, settings, (namespace,), journal)],
            lease_namespace=namespace,
            lease_seconds=seconds,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    asyncio.run(operate(*sys.argv[1:4], int(sys.argv[4])))
