"""The guard of each real client, on and off: the dangerous calls that did not happen, and those that would have.

What a client has no means against is in `GETS_THROUGH`, and in docs/reference/guards-that-are-off.md.
"""

import json

import pytest

from tests.real.clients import CLIENTS, NO_FORCE_PUSH, Site, guarded

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

FILE = f"""{NO_FORCE_PUSH}\
  - name: no-release
    on: tool.start
    python: mine.py:no_release
"""
MINE = """
from hookline import HookResult

def no_release(ctx, c):
    if "RELEASE" in str(c.current_payload):
        return HookResult.block("no release is made by an agent")
    return HookResult.continue_with()
"""
KILLS = """
hooks:
  - {name: kills, on: tool.start, shell: 'kill -9 $PPID; sleep 60'}
"""


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS.keys())
def site(request):
    request.param.installed()
    with Site(request.param) as made:
        made.hooks(FILE, mine=MINE)
        yield made


def dangerous(site):
    """A push that overwrites what others have, and a write of a file that a hook protects."""
    return [site.shell("git push --force origin main"), site.write(site.project / "RELEASE", "1.0")]


def happened(site):
    """The dangerous calls that did happen."""
    wrote = (site.project / "RELEASE").exists()
    return [name for name, did in (("push", site.pushed()), ("write", wrote)) if did]


def test_without_the_guard_every_dangerous_call_happens(site):
    done = site.run([dangerous(site), "done"])
    assert happened(site) == ["push", "write"], done.printed


def test_a_dangerous_call_is_refused_and_a_harmless_one_runs(site):
    site.install()
    done = site.run(
        [
            [*dangerous(site), site.shell("echo fine > fine.txt")],
            [site.shell("ls /nowhere-at-all")],
            "all done",
        ]
    )
    assert done.code == 0, done.printed
    assert happened(site) == []
    assert (site.project / "fine.txt").read_text() == "fine\n"
    assert "no force" in done.sent[1], "the model is told why"
    scopes = [each for each in site.records() if each["record"] == "begun" and each["scope"] == "tool"]
    assert len(scopes) == 4, "one for each call"
    ends = {each["scope_id"]: each["status"] for each in site.records() if each["record"] == "ended"}
    failed = "ok" if site.client.name == "codex" else "failed"
    assert sorted(ends[each["scope_id"]] for each in scopes) == sorted(["blocked", "blocked", "ok", failed])


def gone(site):
    site.hookline.unlink()


def deleted(site):
    (site.project / "hookline.yaml").unlink()


def broken(site):
    (site.project / "hookline.yaml").write_text("hooks: [{name: no-force-push, on: tool.strat")


def killed(site):
    site.hooks(KILLS)


OFF = {"off the PATH": gone, "its file deleted": deleted, "its file broken": broken, "killed": killed}


@pytest.mark.parametrize("off", OFF.values(), ids=OFF.keys())
def test_a_guard_that_cannot_be_asked_any_more_refuses(site, off):
    """It is off from when the model is asked: the prompt was taken up, and only the tool calls are refused."""
    site.install()

    def turn():
        off(site)
        return dangerous(site)

    done = site.run([turn, "all done"])
    assert done.sent, done.printed
    assert happened(site) == []


# An entry of Codex that was changed is not the one that its user trusts, and Codex leaves it out.
GETS_THROUGH = {("codex", "misspelt")}


def test_an_entry_that_is_misspelt_refuses_where_the_client_asks_it_at_all(site):
    site.install()
    settings = site.project / site.client.settings
    whole = json.loads(settings.read_text())
    [group] = whole["hooks"][site.client.tool_start]
    [handler] = group["hooks"]
    assert "hookline answer" in handler["command"]
    handler["command"] = handler["command"].replace("hookline answer", "hooklin answer")
    settings.write_text(json.dumps(whole))
    done = site.run([dangerous(site), "all done"])
    assert done.sent, done.printed
    if (site.client.name, "misspelt") in GETS_THROUGH:
        assert happened(site) == ["push", "write"]
        return
    assert happened(site) == []
    told = done.printed + "".join(done.sent[1:])
    assert "hookline could not be asked" in told, "the model is told, or whoever reads what the client prints"


def test_an_agent_that_rewrites_the_guard_and_approves_it_gets_nothing_through(site):
    site.install()
    done = site.run(
        [
            [site.write(site.project / "hookline.yaml", "hooks: []"), site.shell("rm -f hookline.yaml")],
            [site.shell("printf 'hooks: []\\n' > hookline.yaml")],
            [site.shell("hookline trust")],
            dangerous(site),
            "all done",
        ]
    )
    assert done.sent, done.printed
    assert happened(site) == []


MODEL_FILE = """
hooks:
  - {name: no-model, on: model.start, python: mine.py:refuses}
  - {name: seen, on: model.end, python: mine.py:seen}
"""
MODEL = """
from hookline import HookResult

def refuses(ctx, c):
    return HookResult.block("no model today")

def seen(ctx, c):
    return HookResult.continue_with(tell_user=f"{c.current_payload['model']} {c.status}")
"""


def test_codex_takes_no_refusal_of_its_model_requests_and_that_is_on_record():
    with guarded("codex", MODEL_FILE, mine=MODEL) as site:
        done = site.run([[site.shell("echo fine > fine.txt")], "all done"])
        assert (site.project / "fine.txt").exists(), done.printed
        records = site.records()
    models = [each["scope_id"] for each in records if each["record"] == "begun" and each["scope"] == "model"]
    ends = [each["status"] for each in records if each["record"] == "ended" and each["scope"] == "model"]
    assert (len(models), ends) == (2, ["ok", "ok"])
    notes = [each["note"] for each in records if each["record"] == "decided" and each["note"]]
    assert sum("lost: refuse" in note for note in notes) == 2
    told = [each["tell_user"] for each in records if each["record"] == "called" and each["hook"] == "seen"]
    assert told == ["fake-model ok"] * 2


WITHHOLDS = """
hooks:
  - {name: masks, on: tool.end, match: 'kind:shell|read', on_error: withhold, shell: exit 1}
"""
READS = {
    "claude-code": {"name": "Read", "arguments": lambda path: {"file_path": str(path)}},
    "gemini": {"name": "read_file", "arguments": lambda path: {"file_path": str(path)}},
}


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini"])
def test_a_client_takes_the_output_that_is_withheld_and_its_model_never_reads_the_secret(name):
    with guarded(name, WITHHOLDS) as site:
        file = site.project / "notes.txt"
        file.write_text("the word is XYLOPHONE-7\n")
        calls = [[site.shell("cat notes.txt")], [site.shell("cat notes.txt; cat notes.txt >&2; true")]]
        if name in READS:
            tool = READS[name]
            calls.append([{"name": tool["name"], "arguments": tool["arguments"](file)}])
        done = site.run([*calls, [site.shell("echo fine > fine.txt")], "all done"])
        assert (done.code, "all done" in done.printed) == (0, True), done.printed
        assert (site.project / "fine.txt").read_text() == "fine\n", "it goes on"
    assert len(done.sent) == len(calls) + 2
    for number, sent in enumerate(done.sent[1:], 1):
        assert sent.count("hookline withheld this output") >= min(number, len(calls))
    assert "XYLOPHONE" not in "".join(done.sent)
