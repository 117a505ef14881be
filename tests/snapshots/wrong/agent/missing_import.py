import no_such_module

agent = no_such_module.Agent()
