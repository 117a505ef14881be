"""The tools of Claude Code, Codex, Gemini CLI, kagent and other clients: their kinds and the keys of their input, as data."""

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
    **dict.fromkeys(("ListAgents", "ScheduleWakeup", "Skill", "ToolSearch", "Workflow"), _OTHER),
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
        "invoke_agent": ClientTool("agent", {"prompt": "prompt"}),
        "list_background_processes": ClientTool("shell"),
        "read_background_output": ClientTool("shell"),
        "list_mcp_resources": _MCP,
        "read_mcp_resource": ClientTool("mcp", {"url": "uri"}),
    },
    "kagent": {
        "bash": _SHELL,
        "shell_exec": _SHELL,
        "read_file": _file("read"),
        "write_file": _file("write", content="content"),
        "edit_file": _file("write", content="new_string"),
    },
    "hookline": {
        "bash": _SHELL,
        "read_file": _file("read", "path"),
        "write_file": _file("write", "path", content="content"),
        "edit_file": _file("write", "path", content="new"),
        "list_files": _file("search", "path", pattern="glob"),
    },
    "qwen": {
        "run_shell_command": _SHELL,
        "monitor": _SHELL,
        "read_file": _file("read"),
        "write_file": _file("write", content="content"),
        "edit": _file("write", content="new_string"),
        "notebook_edit": _file("write", "notebook_path", content="new_source"),
        "list_directory": _file("search", "path"),
        "glob": _file("search", "path", pattern="pattern"),
        "grep_search": _file("search", "path", pattern="pattern"),
        "web_fetch": ClientTool("web", {"url": "url", "prompt": "prompt"}),
        "web_search": ClientTool("web", {"query": "query"}),
        "read_mcp_resource": _MCP,
        "agent": ClientTool("agent", {"prompt": "prompt"}),
    },
    # Of clients that were not run here; their names as their users write them.
    "droid": {
        "Execute": _SHELL,
        "Create": _file("write", content="content"),
        "Edit": _file("write", content="new_str"),
        "ApplyPatch": ClientTool("write", {"content": "input"}),
        "FetchUrl": ClientTool("web", {"url": "url"}),
    },
    "auggie": {
        "launch-process": _SHELL,
        "write-process": ClientTool("shell", {"content": "input_text"}),
        "view": _file("read", "path"),
        "save-file": _file("write", "path", content="file_content"),
        "str-replace-editor": _file("write", "path"),
        "remove-files": ClientTool("write", {"path": "file_paths"}),
        "web-fetch": ClientTool("web", {"url": "url"}),
        "web-search": ClientTool("web", {"query": "query"}),
    },
    "opencode": {
        "bash": _SHELL,
        "read": _file("read", "filePath"),
        "write": _file("write", "filePath", content="content"),
        "edit": _file("write", "filePath", content="newString"),
        "patch": ClientTool("write", {"content": "patchText"}),
        "webfetch": ClientTool("web", {"url": "url"}),
    },
    "copilot": {
        "bash": _SHELL,
        "powershell": _SHELL,
        "create": _file("write", "path", content="file_text"),
        "str_replace_editor": _file("write", "path"),
    },
    "cursor": {"Shell": _SHELL},
    "sympozium": {
        "execute_command": _SHELL,
        "read_file": _file("read", "path"),
        "list_directory": _file("search", "path"),
        "write_file": _file("write", "path", content="content"),
        "fetch_url": ClientTool("web", {"url": "url"}),
        "send_channel_message": _OTHER,
        "schedule_task": _OTHER,
        "delegate_to_persona": ClientTool("agent"),
        "spawn_subagents": ClientTool("agent"),
        "memory_search": _OTHER,
        "memory_store": _OTHER,
        "memory_list": _OTHER,
    },
}
"""By client, then by the tool's name."""
_OF_ANY: Mapping[str, ClientTool] = {
    name: tool for table in reversed(TOOLS.values()) for name, tool in table.items()
}
"""Tools by their names, whoever calls them so; of two clients with one name the first."""
_AS_CLAUDE: Mapping[str, tuple[str, ...]] = {
    "shell": ("Bash",),
    "read": ("Read",),
    "write": ("Write", "Edit", "MultiEdit"),
    "search": ("Glob", "Grep", "LS"),
    "web": ("WebFetch", "WebSearch"),
    "agent": ("Task", "Agent"),
}


def tool_named(name: str, as_: str = "claude") -> ClientTool:
    """The entry of a tool, the caller's own before that of another client; an unknown one has kind `other`."""
    if name.startswith("mcp_"):
        return _MCP
    return TOOLS.get(as_, {}).get(name) or _OF_ANY.get(name, _OTHER)


def keys_like(key: str, kind: str) -> list[str]:
    """The keys that tools of a kind have for the same thing: `file_path` of one tool is `path` of another."""
    tables = [tool.keys for tools in TOOLS.values() for tool in tools.values() if tool.kind == kind]
    named = {role for keys in tables for role in keys if key in (role, keys[role])}
    roles = {key} if key in named else named
    return [keys[role] for keys in tables for role in roles if role in keys]


def kind_of(name: str, as_: str = "claude") -> str:
    return tool_named(name, as_).kind


def names_in_claude(tool: str, kind: str | None = None) -> tuple[str, ...]:
    """The names that Claude Code's settings may have for a tool: its own, and those of Claude's tools of its kind."""
    others = () if tool in _CLAUDE else _AS_CLAUDE.get(kind or kind_of(tool), ())
    return (tool, *others)


def kind_meant(match: object, as_: str) -> str | None:
    """The kind of the tools that a matcher names, if the caller has no tool of any of these names; else None."""
    names = match.split("|") if isinstance(match, str) else ()
    if not names or not all(name in _OF_ANY and name not in TOOLS.get(as_, {}) for name in names):
        return None
    kinds = {_OF_ANY[name].kind for name in names}
    return "|".join(kind for kind in (*_AS_CLAUDE, "other") if kind in kinds)
