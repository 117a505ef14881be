"""A release assistant with hooks at its agent, step, model and tool points. Runs offline, on a script.

    hookline run examples/polos/release.py:assistant "Release 1.4 and tell ana@example.com" --ask journal
    hookline explain examples/polos/release.py:assistant
    hookline try tool.start examples/polos/release.py:assistant --tool bash \
        --input '{"command": "git push --force"}'
"""

import re

from hookline import Agent, HookContext, HookResult, Scripted, WorkflowContext, hook, tool

EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
KEY = re.compile(r"sk-[a-z0-9]{8,}")


@hook
def refuse_fridays(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Fails the whole run: nobody releases on a Friday."""
    if "friday" in hook_context.current_payload["input"].lower():
        return HookResult.fail("we do not release on a Friday")
    return HookResult.continue_with()


@hook
def hide_addresses(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Changes the input: the model never sees who is written to."""
    clean = EMAIL.sub("[address]", hook_context.current_payload["input"])
    return HookResult.continue_with(modified_payload={"input": clean})


@hook
def give_rules(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Adds to what the model knows, once."""
    if hook_context.step != 1:
        return HookResult.continue_with()
    return HookResult.continue_with(tell_model="Tags are written v1.4, never 1.4.")


@hook
async def be_sober(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Changes the request on its way to the model."""
    return HookResult.continue_with(modified_payload={"temperature": 0})


@hook
async def hide_keys(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Redacts an output, wherever it stands: a model's text, a tool's result."""
    output = hook_context.current_output
    if not isinstance(output, dict):
        return HookResult.continue_with()
    clean = {key: KEY.sub("[key]", text) for key, text in output.items() if isinstance(text, str)}
    found = {key: text for key, text in clean.items() if text != output[key]}
    return HookResult.continue_with(modified_output=found or None)


@hook(match="kind:shell", timeout=2, inline=True)
def no_force_push(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Blocks one call; the agent is told why and goes on."""
    command = hook_context.current_payload["command"]
    if "push" in command and ("--force" in command or " -f" in command):
        return HookResult.block("force pushes are not allowed here; push without --force")
    return HookResult.continue_with()


@hook(match="publish")
async def ask_before_publishing(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
    """Asks a person, who may approve, reject, or write another input."""
    return HookResult.ask("this goes to every customer")


@tool
def publish(version: str) -> str:
    """Publish a version."""
    return f"{version} is out"


SCRIPT = [
    {
        "text": "I push the tag.",
        "tools": [{"name": "bash", "arguments": {"command": "echo git push --force origin v1.4"}}],
    },
    {
        "text": "Without force, then. The key is sk-live0123456789.",
        "tools": [{"name": "bash", "arguments": {"command": "echo pushed v1.4 with sk-live0123456789"}}],
    },
    {"tools": [{"name": "publish", "arguments": {"version": "v1.4"}}]},
    "Released v1.4, and told [address].",
]

assistant = Agent(
    id="release-assistant",
    model=Scripted(SCRIPT),
    system_prompt="You release software.",
    tools=["bash", publish],
    on_start=[refuse_fridays, hide_addresses],
    on_agent_step_start=[give_rules],
    on_model_start=[be_sober],
    on_model_end=[hide_keys],
    on_tool_start=[no_force_push, ask_before_publishing],
    on_tool_end=[hide_keys],
)
