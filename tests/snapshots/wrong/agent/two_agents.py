from hookline import Agent, Scripted

first = Agent(id="first", model=Scripted(["done"]))
second = Agent(id="second", model=Scripted(["done"]))
