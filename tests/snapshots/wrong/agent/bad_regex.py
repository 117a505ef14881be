from hookline import Agent, HookResult, Scripted, hook


@hook(match="bash|(write")
def look(ctx, hook_context):
    return HookResult.continue_with()


agent = Agent(id="a", model=Scripted(["done"]), on_tool_start=[look])
