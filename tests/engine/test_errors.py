import re
from pathlib import Path

import pytest

from hookline import errors
from hookline.errors import FileError, HookFailed, HooklineError, Refused, UsageError


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ |]*(?:\+-- )?)([A-Z]\w+)(?:  |$)", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        above = [item for item in above if item[0] < depth]
        drawn[name] = above[-1][1] if above else "Exception"
        above.append((depth, name))
    classes = {
        name: getattr(errors, name).__bases__[0].__name__
        for name in dir(errors)
        if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), Exception)
    }
    assert drawn == classes


def test_wrong_use_is_also_a_type_error_as_python_would_have_it():
    assert issubclass(UsageError, TypeError)
    assert issubclass(UsageError, HooklineError)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"file": "a.yaml"}, "a.yaml: no"),
        ({"file": Path("a.yaml"), "line": 3}, "a.yaml:3: no"),
        ({"file": "a.yaml", "line": 3, "key": "hooks[0].on"}, "a.yaml:3: hooks[0].on: no"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(given, text):
    assert str(FileError("no", **given)) == text


def test_a_failed_hook_is_told_by_reason_name_point_and_tool():
    failed = HookFailed("too risky", point="tool.start", hook="guard", tool="bash")
    assert str(failed) == "too risky [hook guard at tool.start (bash)]"
    assert (failed.reason, failed.point, failed.hook, failed.tool) == (
        "too risky",
        "tool.start",
        "guard",
        "bash",
    )
    assert str(Refused("no", point="agent.start", hook="guard")) == "no [hook guard at agent.start]"
