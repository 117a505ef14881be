from hookline import Agent, Scripted

agent = Agent(id="a", model=Scripted(["done"]), colour="red")
