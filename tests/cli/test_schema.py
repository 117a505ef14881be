"""`hookline schema`: what an editor is given must accept what we read, and refuse what we refuse."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("hookline.yaml"))


class _Words(yaml.SafeLoader):
    """YAML as an editor reads it, 1.2: `on` is a word."""


_Words.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def loaded(text):
    return yaml.load(text, Loader=_Words)


@pytest.fixture
def validator(hookline):
    done = hookline("schema")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def told(validator, text):
    return [(list(error.path), error.validator) for error in validator.iter_errors(loaded(text))]


def test_every_example_fits_the_schema(validator):
    assert EXAMPLES
    for file in EXAMPLES:
        assert told(validator, file.read_text()) == [], file


def test_the_file_that_init_writes_fits_the_schema(validator, hookline):
    assert hookline("init").returncode == 0
    text = (hookline.folder / "hookline.yaml").read_text()
    assert loaded(text)["hooks"]
    assert told(validator, text) == []


@pytest.mark.parametrize(
    ("text", "path", "keyword"),
    [
        ("hoks: []", [], "additionalProperties"),
        ("hooks: [{name: a, on: tool.start, shell: x, timout: 5}]", ["hooks", 0], "additionalProperties"),
        ("hooks: [{name: a, on: tool.start, shell: x, command: y}]", ["hooks", 0], "oneOf"),
        ("hooks: [{name: a, on: tool.begin, shell: x}]", ["hooks", 0, "on"], "anyOf"),
        ("hooks: [{on: tool.start, shell: x}]", ["hooks", 0], "required"),
    ],
)
def test_an_editor_is_told_of_a_mistake_where_it_stands(validator, text, path, keyword):
    assert (path, keyword) in told(validator, text)
