from hookline import Agent, Scripted

agent = Agent(id="a", model=Scripted(["done"]), on_tool_start="look")
