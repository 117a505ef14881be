"""References and the folder names made of them: tables."""

import pytest

from hookline.errors import UsageError
from hookline.images.reference import Reference, directory_name, names

DIGEST = "sha256:" + "0123456789abcdef" * 4
LONG = "sha512:" + "0123456789abcdef" * 8

# text -> registry, repository, tag, digest, folder name
READ = {
    "ghcr.io/org/security-hooks:v1.0": ("ghcr.io", "org/security-hooks", "v1.0", None, "security-hooks"),
    "localhost:5000/hooks": ("localhost:5000", "hooks", None, None, "hooks"),
    "localhost/hooks": ("localhost", "hooks", None, None, "hooks"),
    "registry:5000/org/hooks:v2": ("registry:5000", "org/hooks", "v2", None, "hooks"),
    f"ghcr.io/org/hooks@{DIGEST}": ("ghcr.io", "org/hooks", None, DIGEST, "hooks"),
    f"127.0.0.1:5000/org/hooks:v1@{LONG}": ("127.0.0.1:5000", "org/hooks", "v1", LONG, "hooks"),
    "[::1]:5000/hooks:v1": ("[::1]:5000", "hooks", "v1", None, "hooks"),
    "hooks": ("docker.io", "library/hooks", None, None, "hooks"),
    "hooks:v1": ("docker.io", "library/hooks", "v1", None, "hooks"),
    "org/hooks": ("docker.io", "org/hooks", None, None, "hooks"),
    "docker.io/hooks": ("docker.io", "library/hooks", None, None, "hooks"),
    "index.docker.io/org/hooks": ("docker.io", "org/hooks", None, None, "hooks"),
    "docker://ghcr.io/org/a_b__c.d--e:X_1": ("ghcr.io", "org/a_b__c.d--e", "X_1", None, "a_b__c.d--e"),
}


@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ.keys())
def test_a_reference_is_read(text, expected):
    read = Reference.read(text)
    assert (read.registry, read.repository, read.tag, read.digest, directory_name(text)) == expected


# text -> what is asked of the registry, whether it can move
WANTED = {
    "hooks": ("latest", True),
    "hooks:v1": ("v1", True),
    f"hooks@{DIGEST}": (DIGEST, False),
    f"hooks:v1@{DIGEST}": (DIGEST, False),
}


@pytest.mark.parametrize(("text", "expected"), WANTED.items(), ids=WANTED.keys())
def test_a_tag_can_move_and_a_digest_cannot(text, expected):
    read = Reference.read(text)
    assert (read.wanted, read.digest is None) == expected


def test_a_moving_reference_can_be_pinned():
    pinned = Reference.read("localhost:5000/org/hooks:v1").pinned(DIGEST)
    assert pinned == f"localhost:5000/org/hooks@{DIGEST}"
    assert Reference.read(pinned).digest == DIGEST


WRONG = {
    "": "'' is not an image reference",
    " hooks": "' hooks' is not an image reference",
    "ghcr.io/Org/hooks": "wrong image name 'Org/hooks': only lower-case letters are allowed",
    "ghcr.io/org//hooks": "wrong image name 'org//hooks'",
    "ghcr.io/org/": "wrong image name 'org/'",
    "ghcr.io/": "wrong image name ''",
    "ghcr.io/org/hooks:": "wrong tag ''",
    "ghcr.io/org/hooks:v 1": "wrong tag 'v 1'",
    f"hooks:{'t' * 129}": "at most 128 letters",
    "hooks@sha256:abc": "wrong digest 'sha256:abc'",
    "hooks@md5:" + "0" * 32: "wrong digest 'md5:",
    f"hooks@{DIGEST}@{DIGEST}": "wrong digest",
    "host:99999/hooks": "wrong registry 'host:99999'",
    "host:0/hooks": "wrong registry 'host:0'",
    "[:::]:5000/hooks": "wrong registry '[:::]:5000'",
    "ex_ample.com/hooks": "wrong registry 'ex_ample.com'",
    "https://ghcr.io/org/hooks": "wrong",
    "hooks; rm -rf /": "wrong image name",
    "hooks\n": "not an image reference",
    "ghcr.io/org/ho\noks": "wrong image name",
    "ghcr.io/" + "a" * 256: "at most 255 characters are allowed",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=WRONG.keys())
def test_a_wrong_reference_is_told_with_what_would_be_right(text, said):
    with pytest.raises(UsageError) as told:
        Reference.read(text)
    assert said in str(told.value)


NAMES = {
    "ghcr.io/org/security-hooks:v1.0": "security-hooks",
    "host:5000/hooks": "hooks",
    f"host:5000/org/hooks:v1@{DIGEST}": "hooks",
    "plain": "plain",
    "./folder": "folder",
    "./folder/": "folder",
    "/abs/hooks.tar": "hooks.tar",
    "oci:layout": "layout",
    "oci:./layout:v1": "layout",
    "docker-archive:/x/saved.tar": "saved.tar",
    "Upper_Case.1": "Upper_Case.1",
}


@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize(("ref", "name"), NAMES.items(), ids=NAMES.keys())
def test_the_folder_of_an_image_is_its_last_word(ref, name):
    assert directory_name(ref) == name


@pytest.mark.parametrize("ref", ["", ".", "..", "./..", "a/..", "/", "a/b c", "a/$(x)", "a/b\n", "@sha256:0"])
def test_a_reference_without_a_usable_last_word_is_refused(ref):
    with pytest.raises(UsageError, match="gives no folder name"):
        directory_name(ref)


@pytest.mark.rule("kagent 1.7")
def test_the_same_reference_twice_is_one_folder_in_the_order_first_seen():
    assert list(names(["x/b:1", "x/a:1", "x/b:1"]).items()) == [("x/b:1", "b"), ("x/a:1", "a")]


@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize(
    "other",
    ["ghcr.io/org/hooks:v2", "quay.io/org/hooks:v1", "ghcr.io/other/hooks:v1", f"ghcr.io/org/hooks@{DIGEST}"],
)
def test_two_different_references_with_the_same_last_word_are_refused_and_both_named(other):
    with pytest.raises(UsageError) as told:
        names(["ghcr.io/org/hooks:v1", "x/y", other])
    assert "'ghcr.io/org/hooks:v1'" in str(told.value)
    assert repr(other) in str(told.value)
