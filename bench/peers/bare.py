"""The hand-written loops themselves, and what other ways to hold a hook to a limit would cost."""

import bare
from measure import DISPATCH, Case, measure

CASES = (
    Case("async, lazily armed limit", bare.limited, (bare.noop,), DISPATCH, limited=True),
    Case("async, no limit", bare.plain, (bare.noop,), DISPATCH),
    Case("async, asyncio.timeout", bare.eagerly_limited, (bare.noop,), DISPATCH, limited=True),
    Case("sync, inline", bare.plain_sync, (bare.sync_noop,), DISPATCH),
    Case("sync, asyncio.to_thread", bare.threaded, (bare.sync_noop,), DISPATCH, hooks=(1, 10), threaded=True),
)

if __name__ == "__main__":
    measure("bare", CASES)
