"""The public names: what `from hookline import ...` gives, now and later."""

import hookline

SEED = {"Agent", "HookAction", "HookContext", "HookResult", "WorkflowContext", "hook", "tool", "max_steps"}


def test_every_public_name_is_there():
    assert [name for name in hookline.__all__ if not hasattr(hookline, name)] == []


def test_the_names_are_in_order_and_each_stands_once():
    assert hookline.__all__ == sorted(set(hookline.__all__))


def test_the_names_of_the_seed_are_at_the_root():
    assert set(hookline.__all__) >= SEED


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(hookline, "Agnet")
