"""The tools of Claude Code, Codex, Gemini CLI and kagent: the kind of each and the keys of its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ClientTool(NamedTuple):
    """A client's tool. `keys` maps command, path, content, pattern, url, query and prompt to the keys of its input."""

    kind: str
    keys: Mapping[str, str] = {}


def _file(kind: str, path: str = "file_path", **others: str) -> ClientTool:
    return ClientTool(kind, {"path": path, **others})


_OTHER = ClientTool("other")
_MCP = ClientTool("mcp")
_SHELL = ClientTool("shell", {"command": "command"})

_CLAUDE: Mapping[str, ClientTool] = {
    "Bash": _SHELL,
    "PowerShell": _SHELL,
    "BashOutput": ClientTool("shell"),
    "KillShell": ClientTool("shell"),
    "Monitor": _SHELL,
    "Read": _file("read"),
    "NotebookRead": _file("read", "notebook_path"),
    "Write": _file("write", content="content"),
    "Edit": _file("write", content="new_string"),
    "MultiEdit": _file("write"),
    "NotebookEdit": _file("write", "notebook_path", content="new_source"),
    "Glob": _file("search", "path", pattern="pattern"),
    "Grep": _file("search", "path", pattern="pattern"),
    "LS": _file("search", "path"),
    "WebFetch": ClientTool("web", {"url": "url", "prompt": "prompt"}),
    "WebSearch": ClientTool("web", {"query": "query"}),
    "Task": ClientTool("agent", {"prompt": "prompt"}),
    "Agent": ClientTool("agent", {"prompt": "prompt"}),
    "ListMcpResourcesTool": _MCP,
    "ReadMcpResourceTool": _MCP,
}

TOOLS: Mapping[str, Mapping[str, ClientTool]] = {
    "claude": _CLAUDE,
    # Codex 0.166 shows exec_command to hooks as Bash, and a patch as apply_patch with the patch under `command`; older
    # versions used their own names. It asks no hook about write_stdin and web_search.
    "codex": {
        "Bash": _SHELL,
        "shell": _SHELL,
        "local_shell": _SHELL,
        "exec_command": ClientTool("shell", {"command": "cmd"}),
        "write_stdin": ClientTool("shell", {"content": "chars"}),
        "apply_patch": ClientTool("write", {"content": "command"}),
        "Write": ClientTool("write", {"content": "command"}),
        "Edit": ClientTool("write", {"content": "command"}),
        "read_file": _file("read"),
        "view_image": _file("read", "path"),
        "list_dir": _file("search", "dir_path"),
        "grep_files": _file("search", "path", pattern="pattern"),
        "web_search": ClientTool("web", {"query": "query"}),
        "list_mcp_resources": _MCP,
        "list_mcp_resource_templates": _MCP,
        "read_mcp_resource": ClientTool("mcp", {"url": "uri"}),
        "spawn_agent": ClientTool("agent", {"prompt": "message"}),
        "send_input": ClientTool("agent", {"prompt": "message"}),
        "Agent": ClientTool("agent", {"prompt": "message"}),
    },
    "gemini": {
        "run_shell_command": _SHELL,
        "read_file": _file("read"),
        "read_many_files": ClientTool("read", {"pattern": "include"}),
        "write_file": _file("write", content="content"),
        "replace": _file("write", content="new_string"),
        "list_directory": _file("search", "dir_path"),
        "glob": _file("search", "dir_path", pattern="pattern"),
        "search_file_content": _file("search", "dir_path", pattern="pattern"),
        "grep_search": _file("search", "dir_path", pattern="pattern"),
        "web_fetch": ClientTool("web", {"prompt": "prompt"}),
        "google_web_search": ClientTool("web", {"query": "query"}),
        "codebase_investigator": ClientTool("agent", {"prompt": "objective"}),
    },
    "kagent": {
        "bash": _SHELL,
        "shell_exec": _SHELL,
        "read_file": _file("read"),
        "write_file": _file("write", content="content"),
        "edit_file": _file("write", content="new_string"),
    },
}
"""By caller, then by the tool's name."""

_MCP_PREFIX = {"claude": "mcp__", "codex": "mcp__", "gemini": "mcp_", "kagent": "mcp__"}


def tool_named(name: str, as_: str = "claude") -> ClientTool:
    """The entry of a tool; an unknown one has kind `other`."""
    if name.startswith(_MCP_PREFIX[as_]):
        return _MCP
    return TOOLS[as_].get(name, _OTHER)


def kind_of(name: str, as_: str = "claude") -> str:
    return tool_named(name, as_).kind
