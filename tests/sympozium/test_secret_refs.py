"""Local secrets: lines or Secret objects in a file, then the environment; what is wrong is told without its value."""

import pytest

from hookline.errors import FileError
from hookline.sympozium.environment import Secrets, read_secrets
from hookline.sympozium.types import SecretRef
from hookline.table import Location

GOOD = {
    "lines": ("# mine\n\npagerduty/token=a=b \nexport aws/key.id='c'\n", {"pagerduty": {"token": "a=b"}, "aws": {"key.id": "c"}}),
    "objects": (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: aGVsbG8=}\n---\nkind: Secret\nmetadata: {name: b}\nstringData: {t: plain}\n",
        {"a": {"k": "hello"}, "b": {"t": "plain"}},
    ),
    "empty": ("", {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "known"), GOOD.values(), ids=GOOD.keys())
def test_a_file_of_secrets_is_lines_or_objects(tmp_path, text, known):
    file = tmp_path / "secrets"
    file.write_text(text)
    assert read_secrets(file) == known


WRONG = {
    "no pair": ("pagerduty/token=a\nhunter2-is-secret\n", r"secrets:2: .*NAME/KEY=VALUE"),
    "no Secret": ("kind: ConfigMap\nmetadata: {name: a}\n", r"kind is 'ConfigMap'"),
    "no name": ("kind: Secret\nstringData: {a: b}\n", r"metadata\.name"),
    "no base64": (
        "kind: Secret\nmetadata: {name: a}\ndata: {k: hunter2-is-secret}\n",
        r"data\.k: is not base64",
    ),
    "no text": ("kind: Secret\nmetadata: {name: a}\nstringData: {k: 5}\n", r"must be a text; quote it"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_with_its_place_and_without_the_secret(tmp_path, text, said):
    file = tmp_path / "secrets"
    file.write_text(text)
    with pytest.raises(FileError, match=said) as told:
        read_secrets(file)
    assert "hunter2" not in str(told.value)


def ref(**more):
    return SecretRef(**{"name": "page-duty", "key": "api.token", "place": Location("run.yaml", 7), **more})


def test_a_reference_is_looked_up_in_the_file_then_in_the_environment():
    environ = {"PAGE_DUTY_API_TOKEN": "from outside"}
    assert (
        Secrets(known={"page-duty": {"api.token": "in the file"}}, environ=environ).value(ref())
        == "in the file"
    )
    assert Secrets(environ=environ).value(ref()) == "from outside"


def test_one_that_is_missing_is_told_with_its_place_and_an_optional_one_is_not():
    with pytest.raises(
        FileError, match=r"run\.yaml:7: there is no Secret 'page-duty'.*set PAGE_DUTY_API_TOKEN"
    ):
        Secrets().value(ref())
    with pytest.raises(FileError, match=r"has no key 'api\.token'; it has other"):
        Secrets(known={"page-duty": {"other": "x"}}).value(ref())
    assert Secrets().value(ref(optional=True)) is None
