"""YAML and JSON with line numbers: what every file dialect reads through."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.errors import FileError
from hookline.source import (
    MAX_BYTES,
    Document,
    LinedDict,
    front_matter,
    key_of,
    line_of,
    load,
    load_all,
    read,
    without_lines,
)

VALUES = [
    ("on", "on"),
    ("off", "off"),
    ("yes", "yes"),
    ("no", "no"),
    ("y", "y"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("'true'", "true"),
    ('"1"', "1"),
    ("1", 1),
    ("-7", -7),
    ("010", 10),
    ("0o10", 8),
    ("0x1F", 31),
    ("0b1", "0b1"),
    ("1_000", "1_000"),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    (".5", 0.5),
    (".inf", float("inf")),
    ("-.inf", float("-inf")),
    ("1:30", "1:30"),
    ("2026-11-15", "2026-11-15"),
    ("1.2.3", "1.2.3"),
    ("-", "-"),
    ("!!str 1", "1"),
    ("!!int 1", 1),
    ("! 1", "1"),
    ("|\n  two\n  lines", "two\nlines"),
    ("٣", "٣"),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[repr(text) for text, _ in VALUES])
def test_a_word_has_the_value_of_yaml_1_2(text, value):
    found = load(f"a: {text}", "f").value["a"] if text != "-" else load("a: '-'", "f").value["a"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number_is_a_float():
    assert str(load("a: .nan", "f").value["a"]) == "nan"


def test_keys_are_text_as_written():
    assert list(load("on: 1\n1: 2\nnull: 3\ntrue: 4\n1.50: 5", "f").value) == [
        "on",
        "1",
        "null",
        "true",
        "1.50",
    ]


def test_every_value_knows_its_line():
    document = load("# first\na:\n  b: 1\n  c:\n    - x\n    - {d: 2,\n       e: 3}\nf: |\n  text\n", "f")
    lines = {
        (): 2,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
        ("a", "c", 1, "e"): 7,
        ("f",): 8,
        ("a", "missing", "more"): 2,
        ("a", "c", 9): 4,
        ("a", "b", "inside a scalar"): 3,
    }
    assert {trail: line_of(document, trail) for trail in lines} == lines
    assert document.value["a"].lines == {"b": 3, "c": 4}
    assert document.value["a"]["c"].lines == [5, 6]


def test_a_trail_is_shown_as_a_key():
    assert key_of(("hooks", 2, "on", 0)) == "hooks[2].on[0]"
    assert key_of(()) == ""


def test_values_without_lines_are_plain():
    value = without_lines(load("a: [{b: 1}]", "f").value)
    assert value == {"a": [{"b": 1}]}
    assert (type(value), type(value["a"]), type(value["a"][0])) == (dict, list, dict)


# What is written, the line that is told, and part of what is said.
WRONG = {
    "a key twice": (
        "a: 1\nb:\n  c: 1\n  c: 2\n",
        4,
        "b.c: this key is given twice; first in line 3",
    ),
    "a key twice, once quoted": ("1: a\n'1': b", 2, "first in line 1"),
    "a merge twice": ("a: &a {}\nb:\n  <<: *a\n  <<: *a\n", 4, "given twice"),
    "a tab": ("a:\n\tb: 1\n", 2, "a tab indents this line; YAML is indented with spaces"),
    "a tab after spaces": ("hooks:\n  - name: x\n  \ton: y\n", 3, "a tab indents"),
    "a tab after a value": ("a: 1\n\tb: 2\n", 2, "a tab indents"),
    "two colons": ("match: kind: shell", 1, "quote a value"),
    "a star": ("match: *\n", 1, "must be quoted"),
    "an at sign": ("a: 1\nmatch: @x\n", 2, "must be quoted"),
    "a backslash": ('a: "\\s"', 1, "single quotes"),
    "a quote not closed": ("a: 1\nb: 'x\nc: 2\n", 3, "which began in line 2"),
    "a bracket not closed": ("a: [1,\nb: 2\n", None, "this is not YAML"),
    "an alias of nothing": ("a: 1\nb: *x", 2, "b: nothing is named &x above"),
    "an alias inside itself": ("a: &x\n  - *x", 2, "*x is used inside its own anchor"),
    "a tag": ("a: !!python/object:os.system x", 1, "the tag !!python/object:os.system is not known"),
    "a tag of a list": ("a: !!set [1]", 1, "the tag !!set is not known"),
    "our own tag": ("a: !secret x", 1, "the tag !secret is not known"),
    "a tag that does not fit": ("a: !!int x", 1, "'x' is not of the type !!int"),
    "a list as a key": ("a: 1\n? [b]\n: c", 2, "a key is text"),
    "a merge of text": ("a:\n  <<: text", 2, "only a mapping"),
    "a number without end": ("a: " + "9" * 5000, 1, "too long"),
    "two documents": ("a: 1\n---\nb: 2\n", 3, "a second document begins here"),
    "deep lists": ("- " * 100_000, 1, "nested more than 100 deep"),
    "deep brackets": ("[" * 100_000, 1, "nested more than 100 deep"),
    "deep mappings": ("{a: " * 100_000, 1, "nested more than 100 deep"),
    "many values": ("- a\n" * 200_000, None, "more than 100000 values"),
    "a control character": ("a: 1\nb: \x07", 2, "'\\x07' is not allowed in a file"),
    "a NUL": ("a: \0", 1, "'\\x00'"),
    "half a surrogate pair": ("a: \ud800", 1, "'\\ud800'"),
}


@pytest.mark.parametrize(("text", "line", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_with_its_line(text, line, said):
    with pytest.raises(FileError) as caught:
        load(text, "some.yaml")
    assert said in str(caught.value)
    assert caught.value.file == "some.yaml"
    if line is not None:
        assert caught.value.line == line
        assert str(caught.value).startswith(f"some.yaml:{line}: ")


def test_an_alias_bomb_is_refused_before_it_goes_off():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    with pytest.raises(FileError, match="aliases"):
        load("\n".join(rows), "f")


def test_anchors_and_merges_work():
    text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\none:\n  <<: *b\n  y: 5\nboth: {<<: [*b, *m]}\nkey: &k on\n*k : 6"
    document = load(text, "f")
    assert document.value["one"] == {"x": 1, "y": 5}
    assert document.value["both"] == {"x": 1, "y": 2, "z": 4}
    assert document.value["on"] == 6
    assert line_of(document, ("one", "x")) == 1
    assert line_of(document, ("one", "y")) == 5
    assert load("a: {'<<': 1}", "f").value == {"a": {"<<": 1}}
    assert load("a: {<<: []}", "f").value["a"].lines == {}


def test_an_anchor_ends_with_its_document():
    with pytest.raises(FileError, match="nothing is named &x"):
        load_all("a: &x 1\n---\nb: *x", "f")


def test_an_anchor_may_be_used_again():
    assert load("a: &x 1\nb: *x\nc: &x 2\nd: *x", "f").value == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_several_documents_each_have_their_line():
    found = load_all("# kubernetes\na: 1\n---\nb: 2\n---\n", "f")
    assert [(each.value, each.line) for each in found] == [({"a": 1}, 2), ({"b": 2}, 4), (None, 6)]
    assert load("---\n---\na: 1\n---\n", "f").value == {"a": 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# only this\n", "\ufeff"])
def test_an_empty_file_has_no_document(text):
    assert load_all(text, "f") == []
    assert load(text, "f") == Document(None, "f", 1)


def test_a_byte_order_mark_is_not_part_of_the_first_key():
    assert load("\ufeffa: 1", "f").value == {"a": 1}


def test_line_ends_of_windows_change_nothing():
    document = load("a: 1\r\nb:\r\n  - x\r\n", "f")
    assert (document.value, line_of(document, ("b", 0))) == ({"a": 1, "b": ["x"]}, 3)


def test_json_loads_with_lines():
    document = load('{\n\t"a": [1,\n\t\t{"b": "\\/ \\ud83d\\ude00 \\\\ud83d"}]\n}', "settings.json")
    assert document.value == {"a": [1, {"b": "/ 😀 \\ud83d"}]}
    assert line_of(document, ("a", 1, "b")) == 3


WRONG_JSON = {
    "a comment": ('{\n  // no\n  "a": 1}', 2, "Expecting property name"),
    "a comma too many": ('{"a": 1,\n}', None, "this is not JSON"),
    "a key twice": ('{"a": 1,\n "a": 2}', 2, "given twice"),
    "NaN": ('{"a": NaN}', None, "NaN is not a number of JSON"),
    "yaml": ("a: 1", 1, "this is not JSON"),
    "deep": ("[" * 100_000, None, "deep"),
}


@pytest.mark.parametrize(("text", "line", "said"), WRONG_JSON.values(), ids=WRONG_JSON.keys())
def test_wrong_json_is_told_in_the_words_of_json(text, line, said):
    with pytest.raises(FileError, match=said) as caught:
        load(text, "some.json")
    assert line is None or caught.value.line == line


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_whatever_json_says_is_loaded_as_json_loads_it(value):
    text = json.dumps(value, indent=1)
    assert without_lines(load(text, "some.json").value) == value


def told(loaded, *given):
    """What loading says against a text or a file, if anything; anything but a FileError comes through."""
    try:
        loaded(*given)
    except FileError as exc:
        return exc
    return None


@given(st.text(), st.sampled_from(["f.yaml", "f.json"]))
def test_any_text_loads_or_is_told(text, name):
    problem = told(load_all, text, name)
    assert problem is None or problem.file == name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("source")


@given(content=st.binary(), name=st.sampled_from(["f.yaml", "f.json"]))
def test_any_file_is_read_or_told(folder, content, name):
    file = folder / name
    file.write_bytes(content)
    problem = told(read, file)
    assert problem is None or problem.file == str(file)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"\t\n #,?<~0.%@", max_size=60))
def test_any_muddle_of_yaml_signs_loads_or_is_told(text):
    problem = told(load_all, text, "f")
    assert problem is None or 1 <= problem.line <= text.count("\n") + 1


def test_front_matter_keeps_the_lines_of_the_file():
    found = front_matter("---\nhooks:\n  timeout_ms: 5\n--- \n\n# Prompt\n---\nmore", "WORKFLOW.md")
    assert found.document.value == {"hooks": {"timeout_ms": 5}}
    assert line_of(found.document, ("hooks", "timeout_ms")) == 3
    assert (found.body, found.body_line) == ("\n# Prompt\n---\nmore", 5)


def test_front_matter_that_is_wrong_is_told_with_the_line_of_the_file():
    with pytest.raises(FileError) as caught:
        front_matter("---\r\na: 1\r\na: 2\r\n---\r\nbody", "WORKFLOW.md")
    assert caught.value.line == 3


def test_a_file_without_front_matter_is_all_body():
    assert front_matter("# Prompt\n---\n", "f") == (Document(None, "f", 1), "# Prompt\n---\n", 1)
    assert front_matter("", "f").body == ""


def test_empty_front_matter_is_nothing():
    found = front_matter("\ufeff---\n---\nbody", "f")
    assert (found.document.value, found.body, found.body_line) == (None, "body", 3)


def test_front_matter_without_an_end_is_told():
    with pytest.raises(FileError, match="has no end") as caught:
        front_matter("---\na: 1\n", "f")
    assert caught.value.line == 1


def test_a_file_is_read_from_its_place(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read(file).value == {"a": 1}


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "big").write_bytes(b"a" * (MAX_BYTES + 1))
    for name, said in {
        "none": "there is no such file",
        ".": "Is a directory",
        "big": "larger than 4 MB",
        "a\0b": "cannot be read",
    }.items():
        with pytest.raises(FileError, match=said):
            read(f"{tmp_path}/{name}")


NO_TEXT = {
    "not UTF-8": (b"a: 1\nb: \xff\n", 2, "this is not UTF-8: the byte 0xff"),
    "UTF-16": ("a: 1".encode("utf-16"), None, "this is UTF-16; save it as UTF-8"),
}


@pytest.mark.parametrize(("content", "line", "said"), NO_TEXT.values(), ids=NO_TEXT.keys())
def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path, content, line, said):
    (tmp_path / "f.yaml").write_bytes(content)
    with pytest.raises(FileError, match=said) as caught:
        read(tmp_path / "f.yaml")
    assert caught.value.line == line


def test_a_lined_mapping_is_a_mapping():
    value = load("a: 1", "f").value
    assert isinstance(value, LinedDict)
    assert json.dumps(value) == '{"a": 1}'


def test_importing_it_does_not_load_the_parser():
    code = "import sys, hookline.source, hookline.hookfile.condition; print({'yaml', 're2', 'regex'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr
