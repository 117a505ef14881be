from hookline import Agent, Scripted

agent = Agent(id="a", model=Scripted(["done"]), tools=["bsh"])
