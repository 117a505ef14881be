"""The service over HTTP, on loopback: its state, one issue, and a wish to look now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from hookline.errors import UsageError
from hookline.tasks import cancel_and_wait


@asynccontextmanager
async def serving(
    host: str,
    port: int,
    *,
    state: Callable[[], dict[str, Any]],
    issue: Callable[[str], dict[str, Any] | None],
    refresh: Callable[[], dict[str, Any]],
) -> AsyncGenerator[int, None]:
    """Serves while the block runs; the port that it is, where 0 was asked for."""
    import uvicorn

    listener = _listener(host, port)
    app = _app(state, issue, refresh)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    # The service has its own way with signals, and a server that takes them over would hide the first one from it.
    server.capture_signals = nullcontext  # pyright: ignore[reportAttributeAccessIssue]
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait({task}, timeout=5)
        await cancel_and_wait(task)
        listener.close()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on a client can connect, also before the server has got to accept it.
        listener.listen(128)
    except (OSError, OverflowError) as exc:
        listener.close()
        why = getattr(exc, "strerror", None) or exc
        raise UsageError(f"cannot listen on {host}:{port}: {why}") from exc
    return listener


def _app(
    state: Callable[[], dict[str, Any]],
    issue: Callable[[str], dict[str, Any] | None],
    refresh: Callable[[], dict[str, Any]],
) -> Any:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def show_state(_request: Request) -> JSONResponse:
        return JSONResponse(state())

    async def show_issue(request: Request) -> JSONResponse:
        name = request.path_params["identifier"]
        if name == "refresh":
            raise HTTPException(405)
        found = issue(name)
        if found is None:
            return _error(404, "issue_not_found", f"no issue {name!r} is running, waiting or blocked")
        return JSONResponse(found)

    async def look_now(_request: Request) -> JSONResponse:
        return JSONResponse(refresh(), status_code=202)

    async def failed(_request: Request, exc: Exception) -> JSONResponse:
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        known = {
            404: ("not_found", "there is nothing here"),
            405: ("method_not_allowed", "not with this method"),
        }
        code, message = known.get(status, ("internal_error", "this cannot be answered"))
        return _error(status, code, message)

    def _error(status: int, code: str, message: str) -> JSONResponse:
        return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)

    return Starlette(
        routes=[
            Route("/api/v1/state", show_state, methods=["GET"]),
            Route("/api/v1/refresh", look_now, methods=["POST"]),
            Route("/api/v1/{identifier:path}", show_issue, methods=["GET"]),
        ],
        exception_handlers={HTTPException: failed, 500: failed},
    )
