"""The kinds of hook in `hookline.yaml`: what stands behind python, command, shell, http and image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hookline.source import Wrong
from hookline.table import Key, Node, Table, split_command

KINDS = ("python", "command", "shell", "http", "image")
"""The keys of which an entry has exactly one. An image may have a command beside it."""
PROCESSES = ("command", "shell")

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
IMAGE = re.compile(r"[A-Za-z0-9][^\s\x00-\x1f,]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", re.ASCII)
_HEADER_TEXT = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|[\x20-\x7e]*\$(?:[A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})[\x20-\x7e]*"
)
_ADDRESS = "give http://... or https://..."
URL = {"type": "string", "pattern": r"^https?://[^/?#\s@]+([/?#]\S*)?$"}
_HEADER_SHAPE = {"type": "string", "pattern": f"^({_HEADER_TEXT.pattern})$"}


def python(node: Node) -> dict[str, Any]:
    target = line_of_text(node.value, "give module:function, or file.py:function")
    place, _, function = target.rpartition(":")
    if not place or not function.isidentifier():
        raise Wrong(f"is {target!r}; give module:function, or file.py:function")
    if place.endswith(".py"):
        return {"file": place, "function": function}
    if not DOTTED.fullmatch(place):
        raise Wrong(f"{place!r} is neither a module nor a file that ends in .py")
    return {"module": place, "function": function}


def command(node: Node) -> dict[str, Any]:
    if isinstance(node.value, list):
        argv = node.of_list
        for index, item in enumerate(argv):
            if not isinstance(item, str):
                raise Wrong(f"{item!r} is not a text; put it in quotes", (index,))
    else:
        argv = _split(line_of_text(node.value, "give a command, or a list of its arguments", lines=True))
    if not argv or not argv[0].strip():
        raise Wrong("names no program")
    if any("\0" in item for item in argv):
        raise Wrong("has a NUL character in it")
    return {"argv": [str(item) for item in argv]}


def _split(text: str) -> list[str]:
    """As a shell would split it; what only a shell could do is told, not handed on as text."""
    argv, special = split_command(text, "; give a list of them")
    replaced = re.search(r"(?<!\\)(?:\$[A-Za-z_{(]|`)|(?:^|\s)~/", re.sub(r"'[^']*'", "", text))
    if special or replaced:
        what = special or (replaced.group().strip() if replaced else "")
        raise Wrong(f"is started without a shell, so {what!r} has no effect; write shell: instead, or a list")
    return argv


def shell(node: Node) -> dict[str, Any]:
    script = line_of_text(node.value, "give a script", lines=True)
    return {"script": script}


def http(node: Node) -> dict[str, Any]:
    if isinstance(node.value, str):
        return {"url": _url(node), "headers": {}, "variables": []}
    if not isinstance(node.value, Mapping):
        raise Wrong(f"is {node.value!r}; give a URL, or url and headers_from_env")
    values = REQUEST.read(node)
    headers: dict[str, str] = values.get("headers_from_env", {})
    variables = {found[1] for text in headers.values() for found in _REFERENCE.finditer(text)}
    return {"url": values.get("url", ""), "headers": headers, "variables": sorted(variables)}


def _url(node: Node) -> str:
    value = node.value
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; {_ADDRESS}")
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError as exc:
        raise Wrong(f"{value!r} is not a URL: {exc}; {_ADDRESS}") from None
    if not right or re.search(r"[\s\x00-\x1f]", value):
        raise Wrong(f"{value!r} is not a URL; {_ADDRESS}")
    if parts.username or parts.password:
        raise Wrong("has a user or password in it; use headers_from_env, which names a variable")
    return value


def _headers(node: Node) -> dict[str, str]:
    """Each header with its variables as `${NAME}`: no secret stands in the file."""
    if not isinstance(node.value, Mapping):
        raise Wrong("give header: VARIABLE, the name of an environment variable")
    found: dict[str, str] = {}
    for header, text in node.of_mapping.items():
        if not _HEADER.fullmatch(header):
            raise Wrong("this is not the name of a header", (header,))
        if not isinstance(text, str) or not _HEADER_TEXT.fullmatch(text):
            raise Wrong(
                "give a variable (HOOK_TOKEN), or a text with one (Bearer $HOOK_TOKEN); no value", (header,)
            )
        found[header] = f"${{{text}}}" if VARIABLE.fullmatch(text) else _REFERENCE.sub(r"${\1}", text)
    return found


def image(node: Node) -> dict[str, Any]:
    name = line_of_text(node.value, "give the name of an image, such as registry.example/guard:1")
    if not IMAGE.fullmatch(name):
        raise Wrong(f"{name!r} is not the name of an image; give one such as registry.example/guard:1")
    return {"image": name}


def line_of_text(value: Any, wanted: str, *, lines: bool = False) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"is {value!r}; {wanted}")
    if "\0" in value or (not lines and "\n" in value):
        raise Wrong(f"has a {'NUL' if lines else 'NUL or a line break'} in it; {wanted}")
    return value


REQUEST = Table(
    {
        "url": Key(_url, needed=_ADDRESS, shape=URL),
        "headers_from_env": Key(_headers, shape={"type": "object", "additionalProperties": _HEADER_SHAPE}),
    },
    null="read",
)
