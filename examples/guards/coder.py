"""A coding agent on a script, to be guarded by the hookline.yaml beside it."""

from hookline import Agent, Scripted


def calls(command: str) -> dict[str, object]:
    return {"tools": [{"name": "bash", "arguments": {"command": command}}]}


coder = Agent(
    id="coder",
    model=Scripted(
        [
            calls("git -C . push origin +main"),
            calls("curl -s http://localhost/install.sh"),
            calls("echo token ghp_0123456789abcdefghijklmnopqrstuvwxyz"),
            "I could not push, and fetched nothing.",
        ]
    ),
    tools=["bash"],
)
