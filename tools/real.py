"""`make test-real`: the tests that need more than Python, those with a cluster beside the others.

The cluster's wait most of their time, for pods that start and end, so they are two beside each other, each with a cluster
of its own (one after another where one is given). They are shown as they go; what the others print comes when both are
through. Exits with 1 if anything failed.
"""

import os
import subprocess
import sys
import tempfile

PYTEST = [sys.executable, "-m", "pytest", "-m"]
TWO_CLUSTERS = () if os.environ.get("KUBECONFIG") else ("--workers", "2", "--whole-files")
NOTHING = 5


def main() -> int:
    with tempfile.TemporaryFile("w+b") as said:
        others = subprocess.Popen([*PYTEST, "real and not cluster"], stdout=said, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.call([*PYTEST, "real and cluster", *TWO_CLUSTERS]), others.wait()]
        except KeyboardInterrupt:
            others.wait()
            return 130
        said.seek(0)
        print(f"\n==> the tests without a cluster\n{said.read().decode(errors='replace')}", flush=True)
    return 0 if set(codes) <= {0, NOTHING} else 1


if __name__ == "__main__":
    sys.exit(main())
