"""The cases around a real ADK agent. Run inside an environment with google-adk; prints the decisions as JSON."""

import asyncio
import json
import logging
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.apps import App  # noqa: E402
from google.adk.models import BaseLlm, LlmResponse  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.genai import types  # noqa: E402

from hookline.adapters.google_adk import HooklinePlugin  # noqa: E402
from hookline.errors import HookFailed  # noqa: E402
from tests.adapters.same.cases import CASES, FILE, Case, worded  # noqa: E402


class Scripted(BaseLlm):
    """Calls the tool once, then is done."""

    model: str = "scripted"
    name: str
    args: dict
    called: bool = False

    async def generate_content_async(self, llm_request, stream=False):
        part = types.Part(text="done")
        if not self.called:
            self.called = True
            part = types.Part(function_call=types.FunctionCall(id="c1", name=self.name, args=self.args))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def decided(case: Case, workspace: str) -> str:
    ran = []

    def bash(command: str) -> dict:
        """Run a command."""
        ran.append({"command": command})
        return {"stdout": case.output}

    def write_file(path: str, content: str) -> dict:
        """Write a file."""
        ran.append({"path": path, "content": content})
        return {"stdout": case.output}

    agent = LlmAgent(name="a", model=Scripted(name=case.tool, args=case.input), tools=[bash, write_file])
    plugin = HooklinePlugin(FILE, workspace=workspace)
    runner = InMemoryRunner(app=App(name="same", root_agent=agent, plugins=[plugin]))
    await runner.session_service.create_session(app_name="same", user_id="u", session_id="s")
    message = types.Content(role="user", parts=[types.Part(text="go")])
    response, asked = {}, None
    try:
        async for event in runner.run_async(user_id="u", session_id="s", new_message=message):
            for part in event.content.parts if event.content else ():
                if part.function_response:
                    response = part.function_response.response
                elif part.function_call and part.function_call.name == "adk_request_confirmation":
                    asked = part.function_call.args["toolConfirmation"]["hint"]
    except RuntimeError as exc:
        if not isinstance(exc.__cause__, HookFailed):
            raise
        return worded(case, stopped=exc.__cause__.reason)
    finally:
        await runner.close()
    if asked is not None:
        return worded(case, asked=asked)
    if "error" in response:
        return worded(case, refused=response["error"].removeprefix("refused: "))
    if not ran:
        return worded(case, answered=response["stdout"])
    told = "; ".join(response.get("told_by_hooks", []))
    return worded(case, ran=ran[0], read=response["stdout"], told=told)


async def main(workspace: str) -> None:
    json.dump({case.name: await decided(case, workspace) for case in CASES}, sys.stdout)


asyncio.run(main(sys.argv[1]))
