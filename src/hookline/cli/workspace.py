"""`hookline workspace list` and `hookline workspace rm`: the workspaces of a WORKFLOW.md."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from hookline.errors import UsageError
from hookline.options import argument, flag, option
from hookline.symphony.attempt import AttemptSite, removed
from hookline.symphony.read import read_workflow
from hookline.symphony.run import open_site
from hookline.symphony.workspace import Workspace, WorkspaceRoot
from hookline.terminal import interruptible, out, print_json


@dataclass(kw_only=True, eq=False, repr=False)
class ListOptions:
    file: str = option("WORKFLOW.md [default: the one in this folder]")
    json: bool = flag("print JSON")


@dataclass(kw_only=True, eq=False, repr=False)
class RemoveOptions:
    key: str = argument("the workspace's key, as `hookline workspace list` shows it", required=True)
    file: str = option("WORKFLOW.md [default: the one in this folder]")


_SHOWN = ("key", "identifier", "issue_id", "path", "created", "state")


def list_workspaces(options: ListOptions) -> int:
    workflow = read_workflow(options.file).checked()
    if not os.path.isdir(workflow.root):
        found: list[Workspace] = []
    else:
        with WorkspaceRoot(workflow.root, lock=False) as root:
            found = root.listed()
    if options.json:
        print_json([{name: getattr(each, name) for name in _SHOWN} for each in found])
        return 0
    for each in found:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.created)) if each.created else "?"
        half = "" if each.state == "ready" else f"  ({each.state}: incomplete)"
        out.print(f"{each.key}  {each.identifier}  {since}  {each.path}{half}")
    if not found:
        out.print(f"no workspaces in {workflow.root}")
    return 0


def remove_workspace(options: RemoveOptions) -> int:
    workflow = read_workflow(options.file).checked()
    key = options.key
    with open_site(workflow, holder="hookline workspace rm") as site:
        found = site.root.find(key) or next(
            (each for each in site.root.listed() if each.identifier == key), None
        )
        if found is None:
            known = ", ".join(each.key for each in site.root.listed()) or "none"
            raise UsageError(f"there is no workspace {key!r} in {site.root.path}; known: {known}")
        code = interruptible(lambda: _removed(site, found))
    if code == 0:
        out.print(f"removed {found.path}")
    return code


async def _removed(site: AttemptSite, found: Workspace) -> int:
    try:
        await removed(site, found)
    finally:
        await site.runner.close()
    return 0
