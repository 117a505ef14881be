"""What `secretKeyRef` means on one machine: a Secret in the manifest, in a file of the user's, or in the environment."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hookline.errors import FileError
from hookline.source import Document, load_all, text_of
from hookline.sympozium.lifecycle import SecretRef

_LINE = re.compile(r"(?:export\s+)?([a-z0-9.-]+)/([A-Za-z0-9._-]+)=(.*)")
_YAML = re.compile(r"^(---|kind:|apiVersion:|\{)", re.MULTILINE)
_FORM = "write NAME/KEY=VALUE, or Secret objects in YAML"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Where a reference is looked up: `known`, by name and key, then the environment. `file` is for messages."""

    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    file: str = ""

    def value(self, ref: SecretRef) -> str | None:
        """What it refers to; None where an optional one is missing, a FileError where one that is needed is."""
        found = self.known.get(ref.name, {}).get(ref.key)
        if found is None:
            found = self.environ.get(variable(ref))
        if found is None and not ref.optional:
            raise ref.place.problem(self.missing(ref))
        return found

    def missing(self, ref: SecretRef) -> str:
        """Why a reference leads nowhere, and what would be right."""
        name = self.known.get(ref.name)
        if name is None:
            what = f"there is no Secret {ref.name!r}"
        else:
            what = f"Secret {ref.name!r} has no key {ref.key!r}; it has {', '.join(sorted(name)) or 'none'}"
        where = f"put {ref.name}/{ref.key}=... into {self.file or 'a file for --secrets'}"
        return f"{what}; {where}, or set {variable(ref)}"

    def all(self) -> list[str]:
        """Every value that is known here, for masking."""
        return [value for each in self.known.values() for value in each.values()]


def variable(ref: SecretRef) -> str:
    """The variable that holds it where no file does: `pagerduty` and `token` are PAGERDUTY_TOKEN."""
    return re.sub(r"[^A-Z0-9]", "_", f"{ref.name}_{ref.key}".upper())


def read_secrets(file: str | Path) -> dict[str, dict[str, str]]:
    """Lines of NAME/KEY=VALUE, or Secret objects in YAML."""
    text = text_of(file)
    found: dict[str, dict[str, str]] = {}
    pairs = _in_yaml(text, file) if _YAML.search(text) else _in_lines(text, file)
    for name, key, value in pairs:
        found.setdefault(name, {})[key] = value
    return found


def _in_lines(text: str, file: str | Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            # Not the line itself: it may well hold a secret.
            raise FileError(f"this line is not NAME/KEY=VALUE; {_FORM}", file=file, line=number)
        name, key, value = found.groups()
        yield name, key, _unquoted(value.strip())


def _in_yaml(text: str, file: str | Path) -> Iterator[tuple[str, str, str]]:
    for document in load_all(text, file):
        if document.value is not None:
            yield from _of_object(document)


def _of_object(document: Document) -> Iterator[tuple[str, str, str]]:
    given = _mapping(document.value)
    name = _mapping(given.get("metadata")).get("name")
    if given.get("kind") != "Secret":
        raise document.problem(f"kind is {given.get('kind')!r}; a file of secrets has {_FORM}")
    if not isinstance(name, str) or not name:
        raise document.problem("a Secret has no metadata.name")
    for part, plain in (("data", _from_base64), ("stringData", str)):
        for key, value in _mapping(given.get(part)).items():
            if not isinstance(value, str):
                raise document.problem("must be a text; quote it", (part, key))
            try:
                yield name, str(key), plain(value)
            except ValueError:
                raise document.problem(
                    "is not base64 of a text; write it under stringData as it is", (part, key)
                ) from None


def _from_base64(value: str) -> str:
    try:
        return base64.b64decode("".join(value.split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise ValueError from exc


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
