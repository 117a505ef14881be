"""The hooks that hookline.yaml names."""

from hookline import HookResult


def flags(ctx, c):
    return HookResult.continue_with(modified_payload={"command": "pytest -q --maxfail=1"})


def production(ctx, c):
    return HookResult.ask("touches production")


def panic(ctx, c):
    return HookResult.fail("somebody is formatting a disk")


def known(ctx, c):
    return HookResult.answer({"stdout": "an agent"})


def hint(ctx, c):
    return HookResult.continue_with(tell_model="The tests take an hour.")


def breaks(ctx, c):
    raise RuntimeError("no such table")
