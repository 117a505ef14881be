"""Which format a file has, told by its name or its content before anything of that format is loaded."""

from __future__ import annotations

from pathlib import Path

from hookline.hookfile.attach import SUFFIXES
from hookline.source import text_of

__all__ = ["is_agent", "is_agentrun", "is_workflow"]


def is_workflow(file: str) -> bool:
    """Markdown is a WORKFLOW.md."""
    return Path(file).suffix.lower() == ".md"


def is_agentrun(file: str) -> bool:
    """Whether it holds objects of Sympozium's."""
    path = Path(file)
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    from hookline.sympozium.read import is_sympozium

    return is_sympozium(text_of(path), path)


def is_agent(file: str) -> bool:
    """Whether it is named like an agent: a Python file, a manifest, either with `:name`, or `module:name`."""
    place, colon, _ = file.rpartition(":")
    path = Path(place) if colon and not Path(file).exists() else Path(file)
    return path.suffix in (".py", *SUFFIXES) or (bool(colon) and path.suffix.lower() != ".md")
