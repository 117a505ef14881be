"""The definitions of Sympozium's kinds: they have what is read, are as strict as a schema can be, and taken by a real server."""

import copy
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
import yaml

from hookline.kube.objects import KINDS
from hookline.kube.operator import crds
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium import read as reading
from hookline.sympozium.phases import AgentSeen, GateVerdict, Seen, status
from hookline.sympozium.read import parse
from hookline.sympozium.types import ContainerHook, Lifecycle
from tests.kube.kubectl import Kubectl, missing
from tests.sympozium.cluster.manifests import RIGHT, WRONG, full, run, schemas

UNKNOWN = "not known here"
# A position in a list, which older servers do not tell.
POSITION = re.compile(r"\[\d+\]")
ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "sympozium").glob("*.yaml"))
WHOLE = [
    ROOT / "tests" / "fixtures" / "sympozium" / name for name in ("oncall-agent.yaml", "oncall-team.yaml")
]


def properties(kind, *path):
    """The fields that the schema has there; a number leads into a list."""
    at = schemas()[kind]
    for key in path:
        at = at["items"] if key == 0 else at["properties"][key]
    return set(at["properties"])


def fields(schema):
    """The path of every field, as a table gives those of its keys."""
    while "items" in schema:
        schema = schema["items"]
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from (f"{name}.{path}" for path in fields(inner))


def test_every_kind_that_is_read_is_defined():
    assert tuple(schemas()) == reading.KINDS


@pytest.mark.parametrize("system", ["sympozium", "kagent"])
def test_every_kind_is_defined_as_the_client_asks_for_it(system):
    for crd in crds(system):
        spec = crd["spec"]
        names, (version,) = spec["names"], spec["versions"]
        known = KINDS[f"{spec['group']}/{version['name']}", names["kind"]]
        assert (names["plural"], spec["scope"]) == (known.plural, "Namespaced")
        assert crd["metadata"]["name"] == f"{known.plural}.{known.group}"
        assert (names["singular"], names["listKind"]) == (known.kind.lower(), f"{known.kind}List")
        assert names["categories"] == [known.group.partition(".")[0]]


@pytest.mark.parametrize("kind", reading.KINDS)
def test_the_schema_has_the_fields_that_are_read_and_no_other(kind):
    whole = schemas()[kind]
    assert set(whole["properties"]) == set(reading.HEAD.keys)
    described, known = set(fields(whole["properties"]["spec"])), set(reading.SPECS[kind][0].paths())
    assert (known - described, described - known) == (set(), set())


@pytest.mark.parametrize(
    "key", ["task", "model.provider", "lifecycle.preRun.image", "lifecycle.postRun.env.valueFrom"]
)
def test_a_field_that_only_one_of_the_two_has_would_be_seen(key):
    paths = set(reading.SPECS["AgentRun"][0].paths())
    assert key in paths
    assert set(fields(schemas()["AgentRun"]["properties"]["spec"])) - (paths - {key}) == {key}


@pytest.mark.parametrize("kind", reading.KINDS)
def test_the_reader_knows_every_field_of_the_schema(kind):
    found = parse(json.dumps(full(kind)), "full.json")
    assert found.problems == ()
    assert [note for note in found.notes if UNKNOWN in note] == []


def test_a_field_that_nobody_reads_would_be_told():
    odd = full("AgentRun")
    odd["spec"]["lifecycle"]["preRun"][0]["zzz"] = 1
    assert [note for note in parse(json.dumps(odd), "odd.json").notes if UNKNOWN in note] != []


@pytest.mark.rule("sympozium K1", "sympozium 1.3")
@pytest.mark.parametrize("given", RIGHT.values(), ids=RIGHT.keys())
def test_what_is_right_is_right_for_reader_and_schema(given):
    assert parse(json.dumps(given), "right.json").problems == ()
    assert refusals(given) == []


@pytest.mark.rule("sympozium 1.3", "sympozium 1.17.16")
@pytest.mark.parametrize(("given", "field"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_wrong_for_reader_and_schema(given, field):
    assert parse(json.dumps(given), "wrong.json").problems != ()
    assert refusals(given) != []


@pytest.mark.parametrize("kind", reading.KINDS)
def test_an_object_with_every_field_fits(kind):
    assert refusals(full(kind)) == []


@pytest.mark.rule("sympozium 1.3")
def test_what_is_not_given_has_the_default_of_the_reader():
    spec = schemas()["AgentRun"]["properties"]["spec"]["properties"]
    hook = spec["lifecycle"]["properties"]["postRun"]["items"]["properties"]
    found = {key: each["default"] for key, each in {**spec, **hook}.items() if "default" in each}
    assert found == {
        "agentId": "default",
        "cleanup": "delete",
        "mode": "task",
        "useContext": True,
        "imagePullPolicy": "IfNotPresent",
    }
    assert spec["lifecycle"]["properties"]["gateDefault"]["default"] == "block"
    assert schemas()["Ensemble"]["properties"]["spec"]["properties"]["enabled"]["default"] is False
    assert schemas()["PersonaPack"]["properties"]["spec"]["properties"]["enabled"]["default"] is True


@pytest.mark.rule("sympozium 1.12")
def test_all_that_is_written_as_a_status_has_its_field():
    whole = whole_status()
    assert properties("AgentRun", "status") >= set(whole)
    assert properties("AgentRun", "status", "hooks", 0) >= {key for hook in whole["hooks"] for key in hook}
    assert properties("AgentRun", "status", "conditions", 0) >= set(whole["conditions"][0])
    assert properties("AgentRun", "status", "tokenUsage") >= set(whole["tokenUsage"])
    assert refusals({**run(task="t"), "status": whole}) == []


def test_every_path_of_a_column_leads_to_a_field():
    for crd in crds():
        kind, version = crd["spec"]["names"]["kind"], crd["spec"]["versions"][0]
        for column in version["additionalPrinterColumns"]:
            *path, last = column["jsonPath"].strip(".").split(".")
            assert path == ["metadata"] or last in properties(kind, *path)


def test_every_field_that_is_described_ends_with_a_full_stop():
    told = [each for crd in crds() for each in descriptions(crd["spec"]["versions"][0]["schema"])]
    assert [each for each in told if not each.endswith(".")] == []
    assert len(told) > 100


def test_short_names_and_plurals_are_told_apart():
    names = [crd["spec"]["names"] for crd in crds()]
    words = [word for each in names for word in (each["plural"], each["singular"], *each["shortNames"])]
    assert len(words) == len(set(words))
    assert names[0]["shortNames"] == ["ar"]


@pytest.fixture(scope="module")
def kubectl(kubeconfig, tmp_path_factory):
    """kubectl in a namespace of its own, on a server that has the definitions."""
    found = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl"))
    found.define(crds())
    with found.namespace() as made:
        yield made


@pytest.mark.real
def test_the_server_drops_nothing_of_the_definitions(kubectl):
    for crd in crds():
        stored = kubectl.get("crd", crd["metadata"]["name"])
        assert missing(crd["spec"], stored["spec"]) == []
        states = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert states["Established"] == "True"
        # Set where a schema is not structural: the server would then keep nothing of defaults and unknown fields.
        assert states.get("NonStructuralSchema", "False") == "False"


@pytest.mark.real
@pytest.mark.parametrize("kind", reading.KINDS)
def test_the_server_keeps_every_field_of_an_object(kubectl, kind):
    given = full(kind)
    assert kubectl("create", given=given).code == 0
    # By its group too: another test may have defined kagent's Agent on the same server.
    group = given["apiVersion"].partition("/")[0]
    assert missing(given, kubectl.get(f"{kind.lower()}.{group}", "full")) == []


@pytest.mark.real
@pytest.mark.rule("sympozium 1.12")
def test_the_server_keeps_every_field_of_a_status(kubectl):
    whole = {**whole_status(), "gateDigest": "0" * 64, "observedGeneration": 1, "someNewField": {"a": [1]}}
    stored = kubectl.with_status({**run(task="t"), "metadata": {"name": "told"}}, whole)
    assert missing(whole, stored["status"]) == []
    shown = kubectl("get", "ar", "told", "-o", "wide").out.splitlines()
    assert shown[0].split() == ["NAME", "PHASE", "AGENT", "EXIT", "GATE", "AGE", "ERROR"]
    assert shown[1].split()[:3] == ["told", "Succeeded", "0"]


@pytest.mark.real
@pytest.mark.parametrize("file", [*EXAMPLES, *WHOLE], ids=lambda file: file.name)
def test_manifests_are_taken_as_they_are(kubectl, file):
    done = kubectl("apply", "-f", str(file))
    assert done.code == 0, done.err
    assert missing(yaml.safe_load(file.read_text()), kubectl.get("-f", str(file))) == []


@pytest.mark.real
@pytest.mark.rule("sympozium K1", "sympozium 1.3")
@pytest.mark.parametrize("given", RIGHT.values(), ids=RIGHT.keys())
def test_the_server_takes_what_is_right(kubectl, given):
    done = kubectl("create", "--dry-run=server", given=given)
    assert done.code == 0, done.err


@pytest.mark.real
@pytest.mark.rule("sympozium 1.3", "sympozium 1.17.16")
@pytest.mark.parametrize(("given", "field"), WRONG.values(), ids=WRONG.keys())
def test_the_server_refuses_what_is_wrong_and_names_the_field(kubectl, given, field):
    done = kubectl("create", "--dry-run=server", "--validate=false", given=given)
    assert done.code != 0
    told = POSITION.sub("", done.err)
    assert re.search(rf'(?<![\w.])"?{re.escape(POSITION.sub("", field))}"?(?![\w.])', told), done.err


@pytest.mark.real
def test_kubectl_tells_of_a_field_that_does_not_exist(kubectl):
    given = run(task="t", lifecycle={"postrun": []})
    done = kubectl("create", "--dry-run=server", given=given)
    assert done.code != 0
    assert 'unknown field "' in done.err
    assert "postrun" in done.err


def whole_status():
    """A status in which every field is set."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    ended = {"state": ContainerPhase.ENDED, "started": start, "seconds": 1.5}
    hook = ContainerState(**ended, exit_code=1, tail="last", detail="why")
    lifecycle = Lifecycle(
        pre_run=(ContainerHook(name="a", image="b"),),
        post_run=(ContainerHook(name="g", image="b", gate=True), ContainerHook(name="x", image="b")),
    )
    agent = AgentSeen(**ended, exit_code=0, result="done", usage={"inputTokens": 1})
    seen = Seen(
        pre_run=(ContainerState(**ended, exit_code=0),),
        agent=agent,
        post_run=(ContainerState(**ended, reason=EndReason.SETTLED), hook),
        verdict=GateVerdict(action="approve"),
    )
    failed = Seen(pre_run=(hook,), post_run=(hook, hook))
    return {**status(lifecycle, failed), **status(lifecycle, seen)}


def refusals(given):
    """What a server would refuse: by the schema, and by the lists whose items are told apart by a key."""
    schema = plain(copy.deepcopy(schemas()[given["kind"]]))
    found = [error.json_path for error in jsonschema.Draft202012Validator(schema).iter_errors(given)]
    return found or list(doubles(schema, given))


def plain(schema):
    """In the words of JSON Schema."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.pop("x-kubernetes-int-or-string", False) is True:
        schema["type"] = ["integer", "string"]
    return {key: plain(each) for key, each in schema.items()}


def doubles(schema, value):
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            yield from doubles(inner, value.get(key))
    elif isinstance(value, list) and "items" in schema:
        keys = schema.get("x-kubernetes-list-map-keys")
        found = [tuple(item[key] for key in keys) for item in value] if keys else []
        yield from [each for each in found if found.count(each) > 1]
        for item in value:
            yield from doubles(schema["items"], item)


def descriptions(schema):
    if isinstance(schema, list):
        yield from (each for item in schema for each in descriptions(item))
    if not isinstance(schema, dict):
        return
    for key, inner in schema.items():
        if key == "description" and isinstance(inner, str):
            yield inner
        else:
            yield from descriptions(inner)
