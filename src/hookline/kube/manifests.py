"""Objects of a cluster in a user's file: one after another, in a `List`, or without their head as documents show them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, cast

from hookline.errors import FileError
from hookline.source import Document, load_all
from hookline.table import Node, pairs


def holds_objects(
    text: str, file: str | PathLike[str], group: str, is_fragment: Callable[[Any], bool]
) -> bool:
    """True if a text has an object of the group (`kagent.dev/`), or the part of one that has its hooks."""
    try:
        documents = load_all(text, file)
    except FileError:
        return re.search(rf"^apiVersion:\s*['\"]?{re.escape(group)}", text, re.MULTILINE) is not None
    return any(
        api_version(each.value).startswith(group) or is_fragment(each.value) for each in objects(documents)
    )


def objects(documents: list[Document]) -> Iterator[Document]:
    """Each object by itself, also those of a `List`."""
    for document in documents:
        given = as_mapping(document.value)
        items = given.get("items")
        if given.get("kind") != "List" or not isinstance(items, list):
            yield document
            continue
        for item in cast("list[Any]", items):
            yield Document(item, document.file, getattr(item, "line", document.line))


def api_version(value: Any) -> str:
    given = as_mapping(value).get("apiVersion")
    return given if isinstance(given, str) else ""


def as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def secret_values(node: Node) -> dict[str, str]:
    """The texts of a Secret, plain and in base64."""
    found: dict[str, str] = node.get("stringData", pairs, {})
    for key, value in node.get("data", pairs, {}).items():
        try:
            found.setdefault(key, base64.b64decode(value, validate=True).decode())
        except (binascii.Error, UnicodeDecodeError):
            node.wrong("is not text in base64; write it plainly under stringData", "data", key)
    return found
