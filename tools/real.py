"""`make test-real`: the tests that need more than Python, those with a cluster beside the others.

The cluster's wait most of their time, for pods that start and end, so they are two beside each other, each with a cluster
of its own (one after another where one is given). They are shown as they go; what the others print comes when both are
through, and what failed with a cluster once more after it, for the end is where one looks. Exits with 1 if anything failed.
"""

import os
import re
import subprocess
import sys
import tempfile
from typing import IO

PYTEST = [sys.executable, "-m", "pytest", "-m"]
TWO_CLUSTERS = () if os.environ.get("KUBECONFIG") else ("--workers", "2", "--whole-files")
FINE = {0, 5}  # 5: there was no test
FAILED = re.compile(r"^=+ (ERRORS|FAILURES) =+$", re.MULTILINE)


def main() -> int:
    with (
        tempfile.TemporaryFile("w+b") as said,
        subprocess.Popen([*PYTEST, "real and not cluster"], stdout=said, stderr=subprocess.STDOUT) as others,
        subprocess.Popen(
            [*PYTEST, "real and cluster", *TWO_CLUSTERS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as clusters,
    ):
        assert clusters.stdout is not None
        try:
            shown = _shown(clusters.stdout)
            codes = {clusters.wait(), others.wait()}
        except KeyboardInterrupt:
            clusters.communicate()  # it ends its clusters
            others.wait()
            return 130
        said.seek(0)
        print(f"\n==> the tests without a cluster\n{said.read().decode(errors='replace')}", flush=True)
    if clusters.returncode not in FINE:
        failed = FAILED.search(shown)
        print(f"\n==> with a cluster, once more\n{shown[failed.start() if failed else 0 :]}", flush=True)
    return 0 if codes <= FINE else 1


def _shown(output: IO[bytes]) -> str:
    """Show it as it comes; all of it."""
    shown = b""
    while more := os.read(output.fileno(), 1 << 16):
        sys.stdout.buffer.write(more)
        sys.stdout.buffer.flush()
        shown += more
    return shown.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
