"""hookline.yaml: its hooks as declarations, its mistakes with their lines, its schema."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.engine.hook import DEFAULT_TIMEOUT, Declaration, Hook, Mode, OnError, settled_on_error
from hookline.engine.point import Point
from hookline.errors import FileError
from hookline.hookfile.read import DEFAULTS, HOOK, KINDS, declared, parse, read, schema
from hookline.source import Document, load, without_lines
from tests.hookfile.schemas import faults

PAGE = Path(__file__).parents[2] / "docs/reference/hookline-yaml.md"
SAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


MORE = {"name": "h", "on": "tool.start"}


def one(entry: str):
    """The hook of a file with one entry, of `name` and `on` if it does not say."""
    return parse(whole(entry))


def whole(entry: str) -> str:
    rows = entry.split("\n")
    rows += [
        f"{key}: {value}" for key, value in MORE.items() if not re.search(f"^{key}:", entry, re.MULTILINE)
    ]
    return "hooks:\n  -\n" + "\n".join(f"    {row}" for row in rows)


def the_hook(entry: str):
    found = one(entry)
    assert found.problems == ()
    return found.hooks[0]


def test_the_page_s_example_says_what_it_seems_to_say():
    found = parse(SAMPLES[0], folder="/project")
    assert found.problems == ()
    push, rules, notify, opinion = found.hooks
    assert (push.kind, push.points, push.match) == ("python", (Point.TOOL_START,), "kind:shell")
    assert push.params == {"file": "/project/guards.py", "function": "no_force_push"}
    assert push.when == {"input.command": {"matches": r"git\s.*push"}}
    assert (push.timeout, push.on_error, push.mode) == (DEFAULT_TIMEOUT, None, Mode.ENFORCE)
    assert push.source == "hookline.yaml:3"
    assert rules.match == ("kind:write", "mcp__github__.*")
    assert (rules.timeout, rules.on_error) == (5.0, OnError.BLOCK)
    assert rules.params == {
        "argv": ["python3", "hooks/rules.py", "--strict"],
        "folder": "/project",
        "cwd": "/project",
        "env": {"RULES": "rules.toml"},
        "warm": "fork",
        "preload": ["json", "pathlib"],
    }
    assert notify.when == {"status": ["failed", "timed_out"]}
    assert notify.params == {
        "script": 'git status --short > "$HOME/last-failure.txt"\n',
        "folder": "/project",
    }
    assert opinion.mode is Mode.OBSERVE
    assert opinion.params == {
        "url": "https://hooks.example.com/model",
        "headers": {"Authorization": "Bearer ${HOOK_TOKEN}"},
        "variables": ["HOOK_TOKEN"],
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_every_example_of_the_page_loads_and_fits_the_schema(sample):
    assert parse(sample).problems == ()
    assert faults(without_lines(load(sample, "f").value), schema()) == []


def test_the_page_explains_every_key():
    assert [key for key in HOOK.keys if f"| `{key}` |" not in PAGE.read_text()] == []


RIGHT = {
    "on, several": ("on: [tool.start, run.end]\nshell: x", {"points": (Point.TOOL_START, Point.RUN_END)}),
    "on, another tool's": ("on: x.claude.Notification\nshell: x", {"points": ("x.claude.Notification",)}),
    "match, a list of one": ("match: [bash]\nshell: x", {"match": "bash"}),
    "match, two kinds": ("match: kind:read|write\nshell: x", {"match": "kind:read|write"}),
    "match at another tool's event": (
        "on: x.claude.PermissionRequest\nmatch: bash\nshell: x",
        {"match": "bash"},
    ),
    "python, a module": ("python: a.b:f", {"params": {"module": "a.b", "function": "f"}}),
    "python, a file": ("python: ./a.py:f", {"params": {"file": "a.py", "function": "f"}}),
    "image": ("image: a/b:1", {"kind": "image", "params": {"image": "a/b:1", "command": []}}),
    "image, all of it": (
        "image: a/b:1\ncommand: [check, --all]\nargs: [x]\nenv: {A: b}\nnetwork: true",
        {
            "kind": "image",
            "params": {
                "image": "a/b:1",
                "command": ["check", "--all"],
                "args": ["x"],
                "env": {"A": "b"},
                "network": True,
            },
        },
    ),
    "command, a list": (
        "command: [a, '$HOME', '|']",
        {"params": {"argv": ["a", "$HOME", "|"], "folder": "."}},
    ),
    "command, quotes": (
        "command: a 'b | c' \"d e\"",
        {"params": {"argv": ["a", "b | c", "d e"], "folder": "."}},
    ),
    "http, a URL": (
        "http: http://localhost:1",
        {"params": {"url": "http://localhost:1", "headers": {}, "variables": []}},
    ),
    "http, a bare variable": (
        "http: {url: 'http://h', headers_from_env: {X-A: TOKEN}}",
        {"params": {"url": "http://h", "headers": {"X-A": "${TOKEN}"}, "variables": ["TOKEN"]}},
    ),
    "timeout, seconds": ("timeout: 0.5\nshell: x", {"timeout": 0.5}),
    "timeout, milliseconds": ("timeout: 500ms\nshell: x", {"timeout": 0.5}),
    "timeout, minutes": ("timeout: 2m\nshell: x", {"timeout": 120.0}),
    "timeout, long and meant": ("timeout: 5000s\nshell: x", {"timeout": 5000.0}),
    "mode off needs no quotes": ("mode: off\nshell: x", {"mode": Mode.OFF}),
    "env, a number": (
        "env: {PORT: 80}\nshell: x",
        {"params": {"script": "x", "folder": ".", "env": {"PORT": "80"}}},
    ),
    "background": (
        "background: keep\nshell: x",
        {"params": {"script": "x", "folder": ".", "background": "keep"}},
    ),
    "cwd, whole": ("cwd: /tmp\nshell: x", {"params": {"script": "x", "folder": ".", "cwd": "/tmp"}}),
    "preload, one": (
        "command: x.py\nwarm: fork\npreload: json",
        {"params": {"argv": ["x.py"], "folder": ".", "warm": "fork", "preload": ["json"]}},
    ),
}


@pytest.mark.parametrize(("entry", "fields"), RIGHT.values(), ids=RIGHT.keys())
def test_what_is_right_is_read(entry, fields):
    hook = the_hook(entry)
    assert {name: getattr(hook, name) for name in fields} == fields


# An entry, the key that is told, and part of what is said. Those marked ~ only a reader finds, not the schema.
WRONG = {
    "no name": ("- on: tool.start\n  shell: x", "hooks[0]", "name is missing; its name in messages"),
    "a name that is a number": ("- name: 1\n  on: tool.start\n  shell: x", "hooks[0].name", "in quotes"),
    "an empty name": ("- name: ''\n  on: tool.start\n  shell: x", "hooks[0].name", "not empty"),
    "a name of two lines": ('- name: "a\\nb"\n  on: tool.start\n  shell: x', "hooks[0].name", "one line"),
    "no point": ("- name: h\n  shell: x", "hooks[0]", "on is missing; the point it runs at"),
    "an empty list of points": ("- name: h\n  on: []\n  shell: x", "hooks[0].on", "empty list"),
    "a point twice": ("- name: h\n  on: [run.end, run.end]\n  shell: x", "hooks[0].on[1]", "twice"),
    "a point that is none": ("- name: h\n  on: 1\n  shell: x", "hooks[0].on", "is not a point"),
    "a near point": ("- name: h\n  on: tool.strat\n  shell: x", "hooks[0].on", "did you mean tool.start?"),
    "a point with an underscore": (
        "- name: h\n  on: [Tool_Start]\n  shell: x",
        "hooks[0].on[0]",
        "mean tool.start?",
    ),
    "a point of Claude Code": (
        "- name: h\n  on: PreToolUse\n  shell: x",
        "hooks[0].on",
        "did you mean tool.start?",
    ),
    "a point of Symphony": (
        "- name: h\n  on: before_run\n  shell: x",
        "hooks[0].on",
        "did you mean run.start?",
    ),
    "an unknown point": (
        "- name: h\n  on: everything\n  shell: x",
        "hooks[0].on",
        "known: workspace.start, ",
    ),
    "no handler": ("- name: h\n  on: tool.start", "hooks[0]", "give one of python, command, shell, http"),
    "two handlers": (
        "- name: h\n  on: tool.start\n  shell: x\n  command: y",
        "hooks[0].command",
        "a hook has one of python, command, shell, http, image; shell is here already",
    ),
    "an image that is none": (
        "- name: h\n  on: tool.start\n  image: -rm",
        "hooks[0].image",
        "is not the name of an image",
    ),
    "an image and a script": (
        "- name: h\n  on: tool.start\n  image: x\n  shell: y",
        "hooks[0].shell",
        "shell, http, image; image is here already",
    ),
    "a folder for an image": (
        "- name: h\n  on: tool.start\n  image: x\n  cwd: y",
        "hooks[0].cwd",
        "is for command and shell, not for image",
    ),
    "a network for a script": (
        "- name: h\n  on: tool.start\n  shell: x\n  network: true",
        "hooks[0].network",
        "is for image, not for shell",
    ),
    "arguments that are no list": (
        "- name: h\n  on: tool.start\n  image: x\n  args: y",
        "hooks[0].args",
        "give a list of arguments",
    ),
    "a near key": (
        "- name: h\n  on: tool.start\n  shell: x\n  tiemout: 5",
        "hooks[0].tiemout",
        "did you mean timeout?",
    ),
    "a key by another name": (
        "- name: h\n  on: tool.start\n  shell: x\n  matcher: a",
        "hooks[0].matcher",
        "mean match?",
    ),
    "an unknown key": (
        "- name: h\n  on: tool.start\n  shell: x\n  zzz: 1",
        "hooks[0].zzz",
        "known: name, on, match",
    ),
    "a key without a value": (
        "- name: h\n  on: tool.start\n  shell: x\n  env:",
        "hooks[0].env",
        "has no value; further",
    ),
    "~a pattern": (
        "- name: h\n  on: tool.start\n  match: 'a('\n  shell: x",
        "hooks[0].match",
        "not a valid pattern",
    ),
    "~a star": ("- name: h\n  on: tool.start\n  match: ['*']\n  shell: x", "hooks[0].match[0]", "write .*"),
    "~a kind": (
        "- name: h\n  on: tool.start\n  match: kind:shel\n  shell: x",
        "hooks[0].match",
        "unknown tool kind",
    ),
    "an empty match": (
        "- name: h\n  on: tool.start\n  match: ''\n  shell: x",
        "hooks[0].match",
        "give a name",
    ),
    "an empty list of matches": (
        "- name: h\n  on: tool.start\n  match: []\n  shell: x",
        "hooks[0].match",
        "fits no tool",
    ),
    "~a match without a tool": (
        "- name: h\n  on: [tool.start, run.end]\n  match: bash\n  shell: x",
        "hooks[0].match",
        "is for names of tools, and run.end has no tool",
    ),
    "python without a function": (
        "- name: h\n  on: run.end\n  python: guards.py",
        "hooks[0].python",
        "file.py:function",
    ),
    "~python of another file": (
        "- name: h\n  on: run.end\n  python: a/b.sh:f",
        "hooks[0].python",
        "ends in .py",
    ),
    "~a pipe without a shell": (
        "- name: h\n  on: run.end\n  command: a | b",
        "hooks[0].command",
        "write shell: instead",
    ),
    "~a variable without a shell": (
        "- name: h\n  on: run.end\n  command: a $HOME/b",
        "hooks[0].command",
        "'$H' has no",
    ),
    "~a home without a shell": (
        "- name: h\n  on: run.end\n  command: ~/a",
        "hooks[0].command",
        "'~/' has no effect",
    ),
    "~a quote not closed": (
        "- name: h\n  on: run.end\n  command: a 'b",
        "hooks[0].command",
        "no closing quotation",
    ),
    "an empty command": ("- name: h\n  on: run.end\n  command: []", "hooks[0].command", "names no program"),
    "an argument that is a number": (
        "- name: h\n  on: run.end\n  command: [a, 1]",
        "hooks[0].command[1]",
        "quotes",
    ),
    "an empty script": ("- name: h\n  on: run.end\n  shell: ' '", "hooks[0].shell", "give a script"),
    "a URL of another kind": (
        "- name: h\n  on: run.end\n  http: ftp://a",
        "hooks[0].http",
        "give http://... or https",
    ),
    "~a URL with a bad port": (
        "- name: h\n  on: run.end\n  http: http://a:x/",
        "hooks[0].http",
        "is not a URL",
    ),
    "a password in a URL": (
        "- name: h\n  on: run.end\n  http: http://u:p@a",
        "hooks[0].http",
        "use headers_from_env",
    ),
    "http without a URL": ("- name: h\n  on: run.end\n  http: {}", "hooks[0].http", "url is missing"),
    "a header's own value": (
        "- name: h\n  on: run.end\n  http: {url: 'http://a', headers_from_env: {A: 'Bearer s3cret'}}",
        "hooks[0].http.headers_from_env.A",
        "give a variable",
    ),
    "headers": (
        "- name: h\n  on: run.end\n  http: {url: 'http://a', headers: {}}",
        "hooks[0].http.headers",
        "mean headers",
    ),
    "milliseconds": (
        "- name: h\n  on: run.end\n  shell: x\n  timeout: 5000",
        "hooks[0].timeout",
        "Write 5000s or 5000ms",
    ),
    "no time": ("- name: h\n  on: run.end\n  shell: x\n  timeout: 0", "hooks[0].timeout", "more than 0"),
    "~no time, with a unit": (
        "- name: h\n  on: run.end\n  shell: x\n  timeout: 0s",
        "hooks[0].timeout",
        "more than 0",
    ),
    "time in words": (
        "- name: h\n  on: run.end\n  shell: x\n  timeout: 5 minutes",
        "hooks[0].timeout",
        "500ms, 5s",
    ),
    "time that is true": (
        "- name: h\n  on: run.end\n  shell: x\n  timeout: true",
        "hooks[0].timeout",
        "give seconds",
    ),
    "time without end": (
        "- name: h\n  on: run.end\n  shell: x\n  timeout: .nan",
        "hooks[0].timeout",
        "more than 0",
    ),
    "a near mode": (
        "- name: h\n  on: run.end\n  shell: x\n  mode: observed",
        "hooks[0].mode",
        "did you mean observe?",
    ),
    "an on_error": (
        "- name: h\n  on: run.end\n  shell: x\n  on_error: ignore",
        "hooks[0].on_error",
        "known: continue, ",
    ),
    "an on_error that is a list": (
        "- name: h\n  on: run.end\n  shell: x\n  on_error: [fail]",
        "hooks[0].on_error",
        "unknown",
    ),
    "env of a Python hook": (
        "- name: h\n  on: run.end\n  python: a:f\n  env: {A: b}",
        "hooks[0].env",
        "is for command and",
    ),
    "env that is no name": (
        "- name: h\n  on: run.end\n  shell: x\n  env: {A-B: c}",
        "hooks[0].env.A-B",
        "not the name",
    ),
    "env that is ours": (
        "- name: h\n  on: run.end\n  shell: x\n  env: {HOOKLINE_RUN: c}",
        "hooks[0].env.HOOKLINE_RUN",
        "set by",
    ),
    "env that loses digits": (
        "- name: h\n  on: run.end\n  shell: x\n  env: {V: 1.10}",
        "hooks[0].env.V",
        "in quotes",
    ),
    "warm shell": (
        "- name: h\n  on: run.end\n  shell: x\n  warm: fork",
        "hooks[0].warm",
        "is for command, not for shell",
    ),
    "~preload alone": (
        "- name: h\n  on: run.end\n  command: x\n  preload: [a]",
        "hooks[0].preload",
        "without `warm: fork`",
    ),
    "an empty when": (
        "- name: h\n  on: run.end\n  shell: x\n  when: {}",
        "hooks[0].when",
        "give conditions on fields",
    ),
    "a when of nothing known": (
        "- name: h\n  on: tool.start\n  shell: x\n  when:\n    command: a",
        "hooks[0].when.command",
        "did you mean input.command?",
    ),
    "a test that is none": (
        "- name: h\n  on: tool.start\n  shell: x\n  when: {input.a: {contain: b}}",
        "hooks[0].when.input.a.contain",
        "did you mean contains?",
    ),
    "~a when on what is not there yet": (
        "- name: h\n  on: [tool.end, tool.start]\n  shell: x\n  when: {any: [{output.a: b}]}",
        "hooks[0].when.any[0].output.a",
        "this cannot be met at tool.start: there is an output only at .end points",
    ),
    "~a when on a tool where none is": (
        "- name: h\n  on: run.end\n  shell: x\n  when: {kind: shell}",
        "hooks[0].when.kind",
        "only at tool.start and tool.end",
    ),
    "~a status that is none": (
        "- name: h\n  on: run.end\n  shell: x\n  when: {status: [ok, fail]}",
        "hooks[0].when.status[1]",
        "did you mean failed?",
    ),
    "~a pattern in when": (
        "- name: h\n  on: run.end\n  shell: x\n  when: {input.a: {matches: '('}}",
        "hooks[0].when.input.a.matches",
        "not a valid pattern",
    ),
    "an entry that is text": ("- guard.py", "hooks[0]", "a hook is a mapping"),
}


@pytest.mark.parametrize(("entry", "key", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_entry_is_told_and_costs_only_itself(entry, key, said):
    found = parse(
        f"hooks:\n- {{name: first, on: run.end, shell: x}}\n{entry}\n- {{name: last, on: run.end, shell: x}}"
    )
    assert [hook.name for hook in found.hooks] == ["first", "last"]
    (problem,) = found.problems
    assert problem.key == key.replace("hooks[0]", "hooks[1]")
    assert said in problem.message
    assert problem.line is not None
    rows = entry.split("\n")
    word = re.findall(r"[\w-]+", problem.key.partition("]")[2])
    if word and word[0] not in ("http", "env", "when"):
        assert word[0] in rows[problem.line - 3]


@pytest.mark.parametrize(
    ("name", "entry"), [(name, entry) for name, (entry, _, _) in WRONG.items()], ids=WRONG.keys()
)
def test_the_schema_refuses_what_its_shape_shows_to_be_wrong(name, entry):
    value = without_lines(load(f"hooks:\n{entry}", "f").value)
    assert bool(faults(value, schema())) is not name.startswith("~")


@pytest.mark.parametrize("entry", [entry for entry, _ in RIGHT.values()], ids=RIGHT.keys())
def test_the_schema_accepts_what_is_right(entry):
    value = without_lines(load(whole(entry), "f").value)
    assert faults({"version": 1, "x-mine": 1, **value}, schema()) == []


def test_all_that_is_wrong_with_one_entry_is_told_with_its_lines():
    text = "hooks:\n  - name: h\n    on: tool.strat\n    match: '('\n    timeout: 9999\n    shell: x\n    http: y\n"
    assert [problem.line for problem in parse(text, "h.yaml").problems] == [3, 4, 5, 7, 7]
    assert str(parse(text, "h.yaml").problems[0]).startswith("h.yaml:3: hooks[0].on: unknown point")


def test_a_second_hook_of_the_same_name_is_told_with_the_line_of_the_first():
    text = "hooks:\n- {name: a, on: run.end, shell: x}\n- {name: a, on: run.end, shell: y}\n- {name: b, on: run.end, shell: z}"
    found = parse(text)
    assert [hook.params["script"] for hook in found.hooks] == ["x", "z"]
    assert [str(problem) for problem in found.problems] == [
        "hookline.yaml:3: hooks[1].name: 'a' is taken by the hook in line 2"
    ]


WHOLE = {
    "empty": ("", 1, "the file is empty; write `hooks:`"),
    "a list": ("- name: a", 1, "the file is a list; write `hooks:`"),
    "text": ("hello", 1, "the file is one value"),
    "no hooks": ("version: 1", 1, "there is no `hooks`"),
    "a near key": ("hook: []", 1, "hook: unknown key; did you mean hooks?"),
    "hooks by name": ("hooks:\n  a: {on: run.end}", 1, "hooks is not a list; begin each with `- name:`"),
    "another version": ("hooks: []\nversion: 2", 2, "version is 2; this hookline reads 1"),
    "a version in words": ("version: '1'\nhooks: []", 1, "version is '1'"),
    "a version that is true": ("version: true\nhooks: []", 1, "version is True"),
    "a tab": ("hooks:\n\t- name: a", 2, "a tab indents this line"),
    "two documents": ("hooks: []\n---\nhooks: []", 3, "second document"),
}


@pytest.mark.parametrize(("text", "line", "said"), WHOLE.values(), ids=WHOLE.keys())
def test_a_file_that_is_wrong_as_a_whole_has_no_hooks_and_says_why(text, line, said):
    found = parse(text)
    assert found.hooks == ()
    assert [problem.line for problem in found.problems] == [line]
    assert said in str(found.problems[0])
    with pytest.raises(FileError):
        parse(text).checked()


def test_the_hooks_of_a_file_of_another_version_are_not_guessed():
    assert parse("version: 2\nhooks: [{name: a, on: run.end, shell: x}]").hooks == ()


@pytest.mark.parametrize("text", ["hooks:", "hooks: []", "hooks: []\nx-mine: {a: 1}"])
def test_a_file_may_have_no_hooks(text):
    assert parse(text) == ((), (), ())
    assert faults(without_lines(load(text, "f").value), schema()) == []


def test_an_unknown_key_at_the_top_does_not_cost_the_hooks():
    found = parse("hoks: 1\nhooks: [{name: a, on: run.end, shell: x}]")
    assert [hook.name for hook in found.hooks] == ["a"]
    assert [problem.key for problem in found.problems] == ["hoks"]


def test_checking_raises_the_first_and_says_how_many_there_are():
    text = "hooks:\n- {name: a, on: run.end}\n- {name: b, on: run.ned, shell: x}"
    with pytest.raises(FileError, match=r"give one of.*\(and 1 more: hookline check h.yaml\)") as caught:
        parse(text, "h.yaml").checked()
    assert (caught.value.line, caught.value.key) == (2, "hooks[0]")
    assert len(parse("hooks: [{name: a, on: run.end, shell: x}]").checked().hooks) == 1


def test_anchors_serve_to_share_what_hooks_have_in_common():
    text = "x-guard: &guard {on: tool.start, timeout: 5}\nhooks:\n- {<<: *guard, name: a, shell: x}\n- {<<: *guard, name: b, shell: y, timeout: 9}"
    assert [(hook.name, hook.timeout) for hook in parse(text).checked().hooks] == [("a", 5.0), ("b", 9.0)]


def test_a_file_is_read_and_its_paths_are_from_its_folder(tmp_path, monkeypatch):
    (tmp_path / "hookline.yaml").write_text(
        "hooks:\n- {name: a, on: run.end, python: 'g/x.py:f'}\n- {name: b, on: run.end, shell: x, cwd: sub}"
    )
    monkeypatch.chdir(tmp_path)
    a, b = read("hookline.yaml").checked().hooks
    assert a.params["file"] == str(tmp_path / "g/x.py")
    assert b.params["cwd"] == str(tmp_path / "sub")
    assert a.source == "hookline.yaml:2"


def test_a_file_that_is_not_there_is_a_problem(tmp_path):
    found = read(tmp_path / "none.yaml")
    assert found.hooks == ()
    assert "there is no such file" in str(found.problems[0])
    with pytest.raises(FileError):
        read(tmp_path / "none.yaml").checked()


def test_a_file_that_is_no_text_is_a_problem_in_its_line(tmp_path):
    (tmp_path / "f.yaml").write_bytes(b"hooks: []\n# \xe9")
    [problem] = read(tmp_path / "f.yaml").problems
    assert (problem.line, "not UTF-8" in str(problem)) == (2, True)


def test_json_is_accepted():
    text = '{"version": 1, "hooks": [\n {"name": "a", "on": "tool.start", "command": ["a"]}]}'
    (hook,) = parse(text, "hookline.json").checked().hooks
    assert hook.source == "hookline.json:2"


def test_a_declaration_is_plain_data():
    hooks = parse(SAMPLES[0]).hooks
    shown = Declaration(format="hookline", source="f", hooks=hooks).to_dict()
    assert shown["hooks"][1]["match"] == ["kind:write", "mcp__github__.*"]
    assert type(shown["hooks"][0]["when"]) is dict


def test_what_follows_when_a_hook_breaks_is_what_the_page_says():
    async def handler(ctx, hook_context): ...

    hook = Hook(name="h", points=frozenset(Point), handler=handler, defaults=DEFAULTS)
    blocking = {Point.AGENT_START, Point.MODEL_START, Point.TOOL_START}
    for point in Point:
        wanted = OnError.BLOCK if point in blocking else OnError.FAIL if point.is_start else OnError.CONTINUE
        assert settled_on_error(hook, point) is wanted


def test_the_schema_is_for_the_keys_that_are_read():
    entry = schema()["$defs"]["hook"]
    assert list(entry["properties"]) == list(HOOK.keys)
    assert [each["required"] for each in entry["oneOf"]] == [[kind] for kind in KINDS]
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


WORDS = st.sampled_from(
    [*HOOK.keys, *Point, "a", "kind:shell", "5s", "input.a", "not", "any", "x.py:f", "http://a", ""]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.lists(st.dictionaries(WORDS, ANYTHING, max_size=6) | ANYTHING, max_size=3)


@given(ENTRIES)
def test_any_entry_is_a_hook_or_a_problem(entries):
    found = declared(Document({"hooks": entries}, "f"))
    wrong = {re.match(r"hooks\[\d+\]", problem.key or "").group() for problem in found.problems}
    assert len(found.hooks) + len(wrong) == len(entries)


@given(ANYTHING)
def test_any_document_is_read_or_told(value):
    found = declared(Document(value, "f"))
    assert found.problems or isinstance(value.get("hooks"), list) or value == {"hooks": None}
