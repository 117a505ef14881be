"""The table reader: every mistake in the order of the file, at the cost of one entry; its schema and its paths."""

import pytest

from hookline.source import Wrong, load
from hookline.table import (
    UNSET,
    Findings,
    InList,
    InMapping,
    Key,
    Node,
    Table,
    duration,
    filled,
    flag,
    ignore,
    number,
    pairs,
    refuse_slips,
    split_command,
    text,
    texts,
    warn,
    word,
)

PART = Table({"name": Key(text, needed="each has a name"), "size": Key(number)})
THING = Table(
    {
        "name": Key(text, "Its name.", needed="it is known by it", shape={"type": "string"}),
        "mode": Key(word("fast", "slow"), "How it goes.", shape={"enum": ["fast", "slow"]}),
        "on": Key(flag, field="switched_on"),
        "label": Key(text, field="tag"),
        "tag": Key(text, field="tag", today="label"),
        "wait": Key(duration),
        "words": Key(texts),
        "env": Key(pairs),
        "part": Key(InMapping(PART, lambda _, values: values)),
        "parts": Key(InList(PART, lambda node, values: values if node.is_sound else None, "- name: ...")),
    },
    instead={"enabled": "; did you mean on?"},
    free="x-",
)


def read(source, table=THING, *, strict=False):
    findings = Findings(strict=strict)
    values = table.read(Node.root(load(source, "f.yaml"), findings))
    return values, [str(each) for each in findings.problems], [str(each) for each in findings.notes]


def test_what_is_right_is_a_value_by_its_field():
    source = "name: a\nmode: fast\non: true\nwait: 1m30s\nwords: [a]\nenv: {A: 1}\npart: {name: p, size: '2'}\nx-own: 1"
    values, problems, notes = read(source)
    assert (problems, notes) == ([], [])
    assert values == {
        "name": "a",
        "mode": "fast",
        "switched_on": True,
        "wait": 90.0,
        "words": ("a",),
        "env": {"A": "1"},
        "part": {"name": "p", "size": 2.0},
    }


def test_every_mistake_is_told_in_the_order_of_the_file_and_what_is_missing_last():
    values, problems, _ = read("wait: soon\nzzz: 1\non: maybe\nmode: fats")
    assert problems == [
        "f.yaml:1: wait: is 'soon'; write it like 30s, 1m30s or 500ms",
        "f.yaml:2: zzz: unknown key; known: name, mode, on, label, tag, wait, words, env, part, parts",
        "f.yaml:3: on: is 'maybe'; give true or false",
        "f.yaml:4: mode: unknown word 'fats'; did you mean fast?",
        "f.yaml:1: name is missing; it is known by it",
    ]
    assert values == {}


def test_a_wrong_entry_of_a_list_costs_only_itself():
    values, problems, _ = read("name: a\nparts:\n  - {name: p}\n  - {size: big}\n  - 3\n  - {name: q}")
    assert values["parts"] == ({"name": "p"}, {"name": "q"})
    assert problems == [
        "f.yaml:4: parts[1].size: is 'big'; give a number",
        "f.yaml:4: parts[1]: name is missing; each has a name",
        "f.yaml:5: parts[2]: is 3; it must be a mapping (`- name: ...`)",
    ]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("name: ''", "f.yaml:1: name: is ''; it is known by it"),
        ("name:", "f.yaml:1: name: is None; it is known by it"),
        ("{name: a, enabled: true}", "f.yaml:1: enabled: unknown key; did you mean on?"),
        ("{name: a, parts: {}}", "f.yaml:1: parts: is not a list; begin each with `- name: ...`"),
        ("{name: a, part: 3}", "f.yaml:1: part: is 3; it must be a mapping"),
        ("{name: a, words: [a, 1]}", "f.yaml:1: words[1]: is 1; give a text, in quotes"),
        ("{name: a, env: {A: []}}", "f.yaml:1: env.A: is []; give a text, in quotes"),
        (
            "{name: a, label: b, tag: c}",
            "f.yaml:1: tag: is the old name of label, which is given too; give one of them",
        ),
    ],
)
def test_a_mistake_names_its_line_its_key_and_what_would_be_right(source, told):
    assert read(source)[1] == [told]


def test_of_two_keys_for_one_field_the_first_of_the_table_counts_unless_it_is_empty():
    table = Table({"new": Key(text, field="it"), "old": Key(text, field="it")})
    assert read("{old: a, new: b}", table)[0] == {"it": "b"}
    assert read("{old: a, new: ''}", table)[0] == {"it": "a"}


def test_how_an_unknown_key_is_told_is_the_tables_choice():
    keys = {"name": Key(text)}
    assert read("{zzz: 1, nmae: a}", Table(keys, unknown=refuse_slips))[1:] == (
        ["f.yaml:1: nmae: unknown key; did you mean name?"],
        ["f.yaml:1: zzz: this key is not known here and has no effect"],
    )
    _, problems, notes = read("zzz: 1", Table(keys, unknown=warn))
    assert (problems, notes) == ([], ["f.yaml:1: zzz: unknown key, which has no effect; known: name"])
    assert read("zzz: 1", Table(keys, unknown=ignore))[1:] == ([], [])


def test_a_null_is_not_given_or_wrong_or_read_as_the_table_says():
    keys = {"name": Key(text, "Its name.")}
    assert read("name:", Table(keys))[:2] == ({}, [])
    assert read("name:", Table(keys, null="wrong"))[1] == ["f.yaml:1: name: has no value; its name."]
    told = "is None; give a text, in quotes if it looks like a number"
    assert read("name:", Table(keys, null="read"))[1] == [f"f.yaml:1: name: {told}"]
    assert read("name:", Table(keys, null="read", at_entry=True))[1] == [f"f.yaml:1: name {told}"]


def test_a_doubt_is_a_mistake_only_where_it_is_strict():
    def doubtful(node):
        node.doubt("is odd")
        return UNSET

    table = Table({"a": Key(doubtful), "b": Key(filled)})
    assert read("{a: 1, b: ''}", table) == ({}, [], ["f.yaml:1: a: is odd"])
    assert read("a: 1", table, strict=True)[1] == ["f.yaml:1: a: is odd"]


def test_the_schema_has_what_the_table_says():
    keys = {name: THING.keys[name] for name in ("name", "mode")}
    assert Table(keys, free="x-").schema() == {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "patternProperties": {"^x-": {"description": "Yours; not read. A place for anchors."}},
        "properties": {
            "name": {"description": "Its name.", "type": "string"},
            "mode": {"description": "How it goes.", "enum": ["fast", "slow"]},
        },
    }


def test_the_paths_go_down_to_the_last_key():
    assert [path for path in THING.paths() if path.startswith("part")] == [
        "part",
        "part.name",
        "part.size",
        "parts",
        "parts.name",
        "parts.size",
    ]


def test_a_command_is_split_as_a_shell_would_and_the_shells_own_signs_are_seen():
    assert split_command("a 'b c' d") == (["a", "b c", "d"], None)
    assert split_command("a | b")[1] == "|"
    with pytest.raises(Wrong, match=r"cannot be split into arguments: no closing quotation; give a list"):
        split_command("a 'b", "; give a list")
