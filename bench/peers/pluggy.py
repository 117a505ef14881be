"""pluggy: sync hook calls round a tool call; it has no agent loop and no async."""

import pluggy

import bare
from measure import DISPATCH, Case, measure
from timing import Run

spec, hook = pluggy.HookspecMarker("bench"), pluggy.HookimplMarker("bench")


class Spec:
    @spec
    def before_tool(self, tool, args): ...

    @spec
    def after_tool(self, tool, args, result): ...


class Noop:
    @hook
    def before_tool(self, tool, args): ...

    @hook
    def after_tool(self, tool, args, result): ...


def dispatch(n: int) -> Run:
    plugins = pluggy.PluginManager("bench")
    plugins.add_hookspecs(Spec)
    for _ in range(n):
        plugins.register(Noop())

    async def run(calls: int) -> None:
        for _ in range(calls):
            plugins.hook.before_tool(tool="add", args={"x": 1})
            result = await bare.tool(1)
            plugins.hook.after_tool(tool="add", args={"x": 1}, result=result)

    return run


CASES = (Case("sync", dispatch, (Noop.before_tool, Noop.after_tool), DISPATCH),)

if __name__ == "__main__":
    measure("pluggy", CASES, ("pluggy",))
