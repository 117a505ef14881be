"""What the tests of the built-in agent share: hooks that note what they saw, and short ways to write a turn."""

from collections.abc import Callable
from typing import Any

from hookline import HookContext, HookResult, hook
from hookline.agent.sdk import KEYWORDS

EVERY_KEYWORD = tuple(KEYWORDS)
SEEDS_KEYWORDS = (
    "on_start",
    "on_agent_step_start",
    "on_tool_start",
    "on_tool_end",
    "on_agent_step_end",
    "on_end",
)


class Seen:
    """What hooks saw, in order."""

    def __init__(self) -> None:
        self.contexts: list[HookContext] = []
        self.workflows: list[Any] = []

    @property
    def points(self) -> list[str]:
        return [str(context.point) for context in self.contexts]

    def at(self, point: str) -> list[HookContext]:
        return [context for context in self.contexts if context.point == point]

    def only(self, point: str) -> HookContext:
        (context,) = self.at(point)
        return context

    def noting(self, result: HookResult | Callable[[HookContext], HookResult] | None = None) -> Any:
        """A hook that notes its context and then answers `result`."""

        @hook(inline=True)
        def note(ctx: Any, hook_context: HookContext) -> HookResult:
            # A hook's copy is made when it first looks, so it looks now.
            _ = hook_context.current_payload, hook_context.current_output
            self.contexts.append(hook_context)
            self.workflows.append(ctx)
            if callable(result):
                return result(hook_context)
            return result or HookResult.continue_with()

        return note

    def everywhere(self, *keywords: str) -> dict[str, Any]:
        """Keyword arguments for an agent: a noting hook at each point."""
        return {keyword: [self.noting()] for keyword in keywords or EVERY_KEYWORD}


def answering(result: Any) -> Any:
    """A hook that always answers the same, or calls `result` with its context."""

    @hook(inline=True)
    def answer(ctx: Any, hook_context: HookContext) -> HookResult:
        return result(hook_context) if callable(result) else result

    return answer


def calls(*wanted: str | tuple[str, Any], text: str | None = None, **rest: Any) -> dict[str, Any]:
    """A turn that asks for these tools: a name, or a name and its arguments."""
    named = [(each, {}) if isinstance(each, str) else each for each in wanted]
    tools = [{"name": name, "arguments": arguments} for name, arguments in named]
    return {"tools": tools, **({"text": text} if text else {}), **rest}


def texts(request: Any) -> list[str]:
    """The contents of the messages that a scripted model was sent."""
    return [str(message["content"]) for message in request.messages]
