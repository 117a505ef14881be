"""protect_hookline: an agent asks before it changes what guards it; reading is free."""

import os
import subprocess
from pathlib import Path

import pytest

import hookline
from hookline import HookAction, HookContext, WorkflowContext
from hookline.guards import protect_hookline

AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
FILE = """
hooks:
  - {name: protect, on: tool.start, python: 'hookline.guards:protect_hookline'}
  - {name: script, on: tool.start, match: Nothing, shell: ./checks/push.sh >> audit.log}
  - {name: module, on: tool.start, match: Nothing, python: 'rules.more:check'}
  - {name: package, on: tool.start, match: Nothing, python: 'pack:check'}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project with hook file, settings and scripts, a link to one of them, and a home.

    Made once, for the guard is only asked and no command is run.
    """
    top = tmp_path_factory.mktemp("guarded")
    home, work = top / "home", top / "work"
    for folder in (
        home / ".claude",
        home / "state",
        work / ".claude",
        work / "checks",
        work / "src",
        work / "rules",
        work / "pack",
        work / ".gemini",
        work / ".qwen",
        home / ".codex",
        top / "elsewhere",
    ):
        folder.mkdir(parents=True)
    (work / "hookline.yaml").write_text(FILE)
    (work / "checks" / "push.sh").write_text("exit 0\n")
    (work / "rules" / "more.py").write_text("def check(ctx, c): ...\n")
    (work / ".claude" / "settings.json").write_text("{}")
    for client in (".gemini", ".qwen"):
        (work / client / "settings.json").write_text("{}")
    (home / ".claude" / "settings.local.json").write_text("{}")
    (home / "state" / "journal.db").touch()
    (work / "link").symlink_to(work / ".claude" / "settings.json")
    (top / "elsewhere" / "hookline.yaml").symlink_to(top / "other.yaml")
    return top


@pytest.fixture
def place(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project, and its home as that of the user."""
    monkeypatch.setenv("HOME", str(made / "home"))
    monkeypatch.setenv("HOOKLINE_HOME", str(made / "home" / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made / "work"


def said(place, payload, kind="shell", tool="t", **more):
    ctx = WorkflowContext(workflow_id="w", workspace=str(place))
    context = HookContext(
        workflow_id="w", current_tool=tool, tool_kind=kind, current_payload=payload, workflow=ctx, **more
    )
    return protect_hookline(ctx, context).action


WRITES = [
    "echo x > hookline.yaml",
    "cat evil >> ./hookline.yaml",
    "cd src && echo x > ../hookline.yaml",
    "tee hookline.yaml < evil",
    "cp evil.yaml hookline.yaml",
    "cp src/hookline.yaml .",
    "cp src/hookline.yaml ../work/",
    "mv hookline.yaml old.yaml",
    "rm -f hookline.yaml",
    "rm -rf .claude",
    "rm -rf $HOME/state",
    "rm hook*",
    "rm -rf .",
    "sed -i s/a/b/ hookline.yaml",
    "dd if=evil of=hookline.yaml",
    "install -m 644 evil hookline.yaml",
    "ln -sf evil hookline.yaml",
    "truncate -s 0 hookline.yaml",
    "chmod 000 hookline.yaml",
    "git checkout HEAD~3 -- hookline.yaml",
    "git restore .claude/settings.json",
    "git stash push hookline.yaml",
    "echo '{}' > link",
    "echo '{}' > ~/.claude/settings.json",
    "echo x > .claude/settings.local.json",
    "echo x >> .codex/config.toml",
    "sudo tee /etc/claude-code/managed-settings.json < x",
    "echo x > $HOME/.config/hookline/hookline.yaml",
    "sqlite3 $HOME/state/journal.db 'delete from record'",
    "echo '{}' > ~/state/trusted.json",
    "echo exit 0 > checks/push.sh",
    "echo x > rules/more.py",
    """python3 -c "open('hookline.yaml', 'w')" """,
    """python3 -c "import os; open(os.path.join('.claude', 'settings.json'), 'w')" """,
    """node -e "fs.writeFileSync('.gemini/settings.json', '{}')" """,
    "python3 - <<'E'\nopen('hookline.yaml','w').write('')\nE",
    "bash <<'E'\nrm hookline.yaml\nE",
    "bash -c 'rm hookline.yaml'",
    "echo hookline.yaml | xargs rm",
    "echo 'rm hookline.yaml' | sh",
    "find . -name hookline.yaml -delete",
    "perl -pi -e s/block/continue/ hookline.yaml",
    "hookline trust",
    "env -i hookline trust",
    "python3 -m hookline trust hookline.yaml",
    "uv run hookline uninstall claude-code",
    "script -qc 'hookline approve last' /dev/null",
    "echo 'hookline trust' | sh",
    "setsid hookline prune --days 0 &",
    "HOOKLINE_HOME=/tmp/x claude -p hi",
    "export HOOKLINE_HOME=/tmp/x",
    "env -u HOOKLINE_TAG claude",
    "pkill -f hookline",
    "kill $(pgrep -f hookline)",
    "rm $(which hookline)",
    "rm .venv/bin/hookline",
    "pip uninstall -y hookline",
    "uv remove hookline",
    *(f"echo x > {name}" for name in (
        "hookline.yml", "Hookline.YAML", ".qwen/settings.json", ".qoder/settings.json", ".augment/settings.json",
        ".factory/hooks.json", ".factory/settings.json", "../elsewhere/hookline.yaml", "pack/__init__.py",
        "$HOME/.config/hookline/rules.py", "/etc/hookline/trusted", "/etc/claude-code/managed-settings.json",
        "/etc/codex/hooks.json", "/etc/gemini-cli/settings.json", "/etc/qwen-code/settings.json",
    )),
    *(f"""python3 -c "open('{name}', 'w')" """ for name in (
        ".factory/settings.json", ".codex/config.toml", "{base}/hookline/journal.db", "{base}/hookline/trusted.json",
        "{base}/hookline/clients", "{base}/hookline/compiled", "/etc/hookline/{name}", "/etc/claude-code/{name}",
        "/etc/codex/{name}", "/etc/gemini-cli/{name}", "/etc/qwen-code/{name}", "HOME_FOLDER/state/{name}",
    )),
    *(f"{program} - <<'E'\nopen('hookline.yaml', 'w')\nE" for program in (
        "pypy3", "perl", "ruby", "php", "lua5.4", "node", "deno", "bun", "tclsh", "awk", "gawk", "ed", "ex", "vi",
        "vim", "parallel",
    )),
    "echo \"open('hookline.yaml', 'w')\" | python3",
    "xargs rm <<'E'\nhookline.yaml\nE",
    "env python3 - <<'E'\nopen('hookline.yaml', 'w')\nE",
    "truncate -s 0 hook*",
    "cat evil | tee hookline.ya?l",
    "sed -n '$w hookline.yaml' evil",
    "sed 's/a/b/gw hookline.yaml' evil",
    "rm -rf ~/.claude",
    "rm -rf $HOME/.cod*",
    "rm -rf $HOME/sta*",
    "cd $HOME && rm -rf state",
    "rm -rf .gemini",
    "rm -rf .qwen",
    "mv .gemini old",
    "mv src/push.sh checks/",
    "cp src/settings.json .qoder/",
    "shred -u hook*",
    "unlink hook*",
    "trash .gemini",
    "trash hook*",
    "chmod 000 link",
    "git reset HEAD~3 hookline.yaml",
    "git clean -fx hookline.yaml",
    "git rm hookline.yaml",
    "git mv hookline.yaml old.yaml",
    "git apply --include=hookline.yaml x.patch",
    "git am --include=hookline.yaml x.mbox",
    *(f"find . -name hookline.yaml {word} rm {{}} ';'" for word in ("-exec", "-execdir", "-ok", "-okdir")),
    *(f"hookline {word} last" for word in ("approve", "reject", "rewrite", "uninstall")),
    "script -qc 'hookline uninstall codex' /dev/null",
    "HOOKLINE_TRUST=sha256:0 claude -p hi",
    "env HOOKLINE_HOME=/tmp/x claude -p hi",
    "unset HOOKLINE_TAG",
    "declare -x HOOKLINE_HOME=/tmp/x",
    "killall hookline",
    "skill hookline",
    "kill $(cat /run/hookline.pid)",
    "python3 -m pip install --force-reinstall hookline==0.1",
    "find . -name '*.yaml' -exec sed -i s/block/off/ {} +",
    "find ~ -name '*.db' -delete",
    "ls | xargs rm",
    "rm -rf $(ls)",
    "sed -i s/block/off/ *.yaml",
    "sed 's/a/b/w hookline.yaml' evil",
    "cp -t . src/hookline.yaml",
    "rsync -a --delete src/ .",
    "uniq evil hookline.yaml",
    "tree -o hookline.yaml",
    "flock lock rm -rf .",
    "git checkout -- .",
    "git restore .claude",
    "git -C .claude checkout -- settings.json",
]  # fmt: skip


@pytest.mark.parametrize("command", WRITES)
def test_a_shell_asks_before_it_changes_the_guard(place, command):
    command = command.replace("HOME_FOLDER", str(place.parent / "home"))
    assert said(place, {"command": command}) is HookAction.ASK


READS = [
    "cat hookline.yaml",
    "grep -n push hookline.yaml .claude/settings.json",
    "sed -n 1,20p hookline.yaml",
    "sed 's/new text/x/' hookline.yaml",
    "truncate -s 0 *.log",
    "cp src/a.txt .",
    "diff hookline.yaml other.yaml > changes.txt",
    *(f"{program} hookline.yaml src/copy.txt" for program in ("cp", "install", "ln", "rsync", "scp")),
    "git diff hookline.yaml",
    "git add hookline.yaml && git commit -m 'hookline trust and hookline.yaml'",
    "git checkout main",
    "hookline check hookline.yaml",
    "hookline explain agent.py --hooks hookline.yaml",
    "hookline runs last",
    "ls -la ~/state",
    "find . -name hookline.yaml",
    "rm -rf src build",
    "rm *.pyc",
    "find . -name '*.pyc' | xargs rm -f",
    'for f in src/*.py; do sed -i s/a/b/ "$f"; done',
    'ls -la; rm -rf "$OUT/x"',
    "git clean -fdx build",
    "git clean -n",
    "git stash",
    "git restore src",
    "cp -r src/. build",
    "tar czf all.tgz *",
    "sed -n 's/show me/x/p' hookline.yaml",
    "pip install requests && uv run hookline install claude-code",
    "echo x > audit.log",
    "echo x > src/push.sh",
    "echo see hookline.yaml > notes.txt",
    "python3 -c 'print(1)'",
    "make test",
    "pgrep -f hookline",
]


@pytest.mark.parametrize("command", READS)
def test_a_shell_reads_and_works_freely(place, command):
    assert said(place, {"command": command}) is HookAction.CONTINUE


CHANGING = (
    *("edit", "create", "move", "delete", "remove", "rename", "patch", "update", "append", "replace"),
    *("save", "put", "copy", "insert"),
)
CALLS = [
    ("Write", "write", {"file_path": "hookline.yaml", "content": ""}, True),
    ("Edit", "write", {"file_path": "{place}/.claude/settings.json", "new_string": ""}, True),
    ("write_file", "write", {"path": "src/../link"}, True),
    (
        "apply_patch",
        "write",
        {"command": "*** Begin Patch\n*** Update File: hookline.yaml\n*** End Patch"},
        True,
    ),
    ("Write", "write", {"file_path": "checks/push.sh"}, True),
    ("Write", "write", {"file_path": "~/state/clients/1-2"}, True),
    ("mcp__files__write_file", "mcp", {"path": "hookline.yaml"}, True),
    ("Filer", "write", {"path": "hookline.yaml"}, True),
    ("Write", "write", {"file_path": str(Path(hookline.__file__).parent / "answer.py")}, True),
    *((f"mcp__files__{word}", "mcp", {"path": "hookline.yaml"}, True) for word in CHANGING),
    *(("mcp__box__run", "mcp", {key: "rm hookline.yaml"}, True) for key in ("command", "cmd", "script")),
    ("Terminal", "shell", {"line": "rm hookline.yaml"}, True),
    ("Terminal", "shell", {"command": ["sh", "-c", "echo hookline.yaml | xargs rm"]}, True),
    ("Terminal", "shell", {"command": "echo x > settings.json", "workdir": ".claude"}, True),
    ("Write", "write", {"file_path": "no\0path"}, False),
    ("mcp__box__run", "mcp", {"command": "rm hookline.yaml"}, True),
    ("mcp__files__move_file", "mcp", {"source": "hookline.yaml", "destination": "src/x"}, True),
    ("mcp__ide__executeCode", "mcp", {"code": "open('hookline.yaml', 'w')"}, True),
    ("run_shell_command", "shell", {"command": "rm settings.json", "dir_path": ".claude"}, True),
    ("run_shell_command", "shell", {"command": "rm settings.json", "directory": ".claude"}, True),
    ("mcp__ide__executeCode", "mcp", {"code": "print(1)"}, False),
    ("mcp__files__read_file", "mcp", {"path": "hookline.yaml"}, False),
    ("Write", "write", {"file_path": "src/app.py", "content": "hookline.yaml"}, False),
    ("Write", "write", {"file_path": "audit.log"}, False),
    ("TodoWrite", "other", {"todos": ["change hookline.yaml"]}, False),
]


@pytest.mark.parametrize(("tool", "kind", "payload", "asks"), CALLS)
def test_a_tool_asks_before_it_changes_the_guard(place, tool, kind, payload, asks):
    given = {
        key: value.replace("{place}", str(place)) if isinstance(value, str) else value
        for key, value in payload.items()
    }
    assert said(place, given, kind, tool) is (HookAction.ASK if asks else HookAction.CONTINUE)


@pytest.mark.parametrize(
    ("mode", "action"),
    [("default", "ask"), ("bypassPermissions", "block"), ("dontAsk", "block"), ("auto", "block")],
)
def test_where_no_person_is_asked_it_is_a_refusal(place, mode, action):
    assert said(place, {"command": "rm hookline.yaml"}, native={"permission_mode": mode}) == action


def test_a_command_that_is_too_much_to_read_is_refused(place):
    assert said(place, {"command": "true " * 40_000}) is HookAction.BLOCK


AGENT = """
from hookline import Agent, Scripted, tool

@tool(kind="mcp")
def save(path: str):
    open(path, "w").write("gone")

@tool
def put(path: str):
    open(path, "w").write("gone")

FILE = {"path": "hookline.yaml"}
turn = {"tools": [{"name": "bash", "arguments": {"command": "echo gone > hookline.yaml; touch ran"}},
                  {"name": "write_file", "arguments": {**FILE, "content": "gone"}},
                  {"name": "save", "arguments": FILE}, {"name": "put", "arguments": FILE}]}
agent = Agent(id="coder", tools=["bash", "write_file", save, put], model=Scripted([turn, "done"]))
"""
ALONE = "hooks:\n  - {name: protect, on: tool.start, python: 'hookline.guards:protect_hookline'}\n"


def test_where_nobody_answers_the_file_is_not_written(hookline):
    (hookline.folder / "coder.py").write_text(AGENT)
    (hookline.folder / "hookline.yaml").write_text(ALONE)
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 0, done.stderr
    assert (hookline.folder / "hookline.yaml").read_text() == ALONE
    assert not (hookline.folder / "ran").exists()
    assert "protect hookline: " in done.stderr


# Each takes the entry of hookline out of settings that git ignores; without the guard nothing would tell.
UNHOOKED = [
    "git clean -qfdx",
    "git stash -qa",
    "find . -name 'settings*' -delete",
    "find .claude -type f | xargs rm",
    "for f in .claude/*.json; do rm $f; done",
    "ls .claude/*.json | while read -r f; do rm $f; done",
    "sed -i d .claude/*.json",
    "cd .claude && python3 -c \"open('settings.local.json', 'w')\"",
    "python3 -c \"import shutil; shutil.rmtree('.claude')\"",
    "env -C .claude rm settings.local.json",
    "echo \"open('.claude/settings.local.json', 'w')\" > w.py; python3 w.py",
    "cp -r other/. .",
    "cp -r other/.claude .",
    "git apply <<'E'\n--- a/.claude/settings.local.json\n+++ b/.claude/settings.local.json\n@@ -1 +1 @@\n-{}\n+[]\nE",
]


def test_settings_that_no_approval_covers_stay_whole(hookline):
    def made(name):
        folder = hookline.folder / name
        for each in (folder / ".claude", folder / "other" / ".claude"):
            each.mkdir(parents=True)
        (folder / ".gitignore").write_text(".claude/\nw.py\n")
        (folder / "other" / ".claude" / "settings.local.json").write_text("[]\n")
        settings = folder / ".claude" / "settings.local.json"
        settings.write_text("{}\n")
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        for words in (["init", "-q"], ["add", "."], [*AUTHOR, "commit", "-qm", "x"]):
            subprocess.run(["git", *words], cwd=folder, env=environ, check=True)
        return settings

    for at, command in enumerate(UNHOOKED):
        settings = made(f"unguarded{at}")
        words = (
            ["git", *AUTHOR, *command.split()[1:]]
            if command.startswith("git stash")
            else ["sh", "-c", command]
        )
        subprocess.run(words, cwd=settings.parent.parent, check=False)
        assert not settings.exists() or settings.read_text() != "{}\n", f"{command!r} should be a danger"

    settings = made("guarded")
    folder = settings.parent.parent
    turn = {"tools": [{"name": "bash", "arguments": {"command": each}} for each in UNHOOKED]}
    model = f"Scripted([{turn!r}, 'done'])"
    (folder / "coder.py").write_text(
        f"from hookline import Agent, Scripted\nagent = Agent(id='coder', tools=['bash'], model={model})\n"
    )
    (folder / "hookline.yaml").write_text(ALONE)
    done = hookline(
        "run", "guarded/coder.py", "x", "--hooks", "guarded/hookline.yaml", "--workspace", "guarded"
    )
    assert done.returncode == 0, done.stderr
    assert settings.read_text() == "{}\n"
    assert "protect hookline: " in done.stderr
