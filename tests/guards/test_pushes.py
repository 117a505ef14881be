"""no_force_push: every spelling that must be caught, and what must pass."""

import shutil
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hookline import Agent, HookAction, HookContext, Scripted
from hookline.guards import no_force_push, no_force_push_unless
from hookline.guards.commands import MOST_STEPS, StepBudget
from hookline.guards.pushes import objection
from hookline.guards.shell import LONGEST

FORCED = [
    # plain
    "git push --force",
    "git push -f",
    "git push origin main -f",
    "git push -fu origin main",
    "git push -uf origin main",
    "git push -qvf",
    "git push --force-with-lease",
    "git push --force-with-lease=main:abc origin main",
    "git push --force-if-includes",
    "git push --force-w",
    "git push --mir",
    "git push origin +main",
    "git push origin +HEAD:refs/heads/main",
    "git push origin '+main'",
    "git push --mirror",
    "git push --prune origin",
    "git push --delete origin main",
    "git push -d origin main",
    "git push origin :main",
    "git push origin :refs/heads/main",
    "git send-pack --force origin",
    "git-push -f",
    "/usr/lib/git-core/git-push -f",
    # options and wrappers in front
    "git -C dir push -f",
    "git -c user.name=x push -f",
    "git --git-dir=x --work-tree y push -f",
    "git --no-pager push -f",
    "env X=1 git push -f",
    "X=1 git push -f",
    "env -S 'git push -f'",
    "sudo git push -f",
    "sudo -u me -E git push -f",
    "command git push -f",
    "exec git push -f",
    "nohup git push -f &",
    "timeout 10 git push -f",
    "time -p git push -f",
    "nice -n 5 git push -f",
    "/usr/bin/git push -f",
    "'/usr/bin/git' push -f",
    "git.exe push -f",
    "docker exec box git push -f",
    "find . -name x -exec git push -f \\;",
    "ssh host 'cd x && git push -f'",
    "ssh host git push -f",
    "watch 'git push -f'",
    # quoting
    "git pu''sh --fo\"rce\"",
    "g\\it pu\\sh -\\f",
    "'git' \"push\" '-f'",
    "git push $'-f'",
    "git push $'\\x2df'",
    "git push $'\\55\\146'",
    'git push $"-f"',
    "git push \\\n  --force",
    "git \\\npush -f",
    "gi\\\nt push -f",
    "git\tpush\t-f",
    "git${IFS}push${IFS}-f",
    "git$IFS''push$IFS-f",
    "{git,push,-f}",
    "git push {-f,origin}",
    "git push --{force,quiet}",
    "git push -{e..g}",
    # among other commands
    "ls; git push -f",
    "ls && git push -f",
    "ls || git push -f",
    "ls | git push -f",
    "ls & git push -f",
    "ls\ngit push -f",
    "git push -f 2>&1 | tail",
    "2>/dev/null git push -f",
    "git push >log -f",
    "git push -f # quickly",
    "# git\ngit push -f",
    "(git push -f)",
    "( cd x; (git push -f) )",
    "{ git push -f; }",
    "if true; then git push -f; fi",
    "for x in 1 2; do git push -f; done",
    "while ! git push -f; do :; done",
    "case x in x) git push -f;; esac",
    "f() { git push -f; }; f",
    "function f { git push -f; }; f",
    "! git push -f",
    "((x<<2))\ngit push -f\n2",
    "echo $((1<<2))\ngit push -f",
    "cat <<EOF\nhello\nEOF\ngit push -f",
    "cat <<'EOF'; git push -f\nit's\nEOF",
    "cat <<-EOF\n\thello\n\tEOF\ngit push -f",
    "git push origin main && git push -f",
    # inside others
    "echo $(git push -f)",
    'echo "$(git push -f)"',
    'echo "$(case x in x) git push -f;; esac)"',
    "echo `git push -f`",
    'echo "`git push -f`"',
    'echo "${x:-$(git push -f)}"',
    "cat <(git push -f)",
    "cat <<EOF\n$(git push -f)\nEOF",
    "bash -c 'git push -f'",
    "sh -lc 'git push -f'",
    "bash --norc -e -c 'ls; git push -f'",
    "bash -co pipefail 'git push -f'",
    '/bin/sh -c "git push -f"',
    "bash -c \"bash -c 'git push -f'\"",
    "sudo bash -c 'git push -f'",
    "xargs sh -c 'git push -f'",
    "eval git push -f",
    "eval 'git push' -f",
    'eval "$(echo git push -f)"',
    "bash <<< 'git push -f'",
    "bash <<EOF\ngit push -f\nEOF",
    "bash -s <<'EOF'\ngit push -f\nEOF",
    "echo 'git push -f' | bash",
    "echo x | bash; echo 'git push -f' | bash",
    "printf '%s %s %s' git push -f | sh",
    "printf 'git push -f\\n' | sudo sh",
    "cat <<EOF | bash\ngit push -f\nEOF",
    "echo 'git push -f' > x.sh && sh x.sh",
    "cat > x.sh <<'EOF'\ngit push -f\nEOF\nchmod +x x.sh && ./x.sh",
    "source <(echo git push -f)",
    "$(echo git push -f)",
    "$(echo git) push -f",
    "python3 -c \"import os; os.system('git push -f')\"",
    "python -c \"import subprocess as s; s.run(['git', 'push', '--force'])\"",
    "python3 <<'EOF'\nimport os\nos.system('git push --force')\nEOF",
    "perl -e 'system(\"git push -f\")'",
    "trap 'git push -f' EXIT",
    "git submodule foreach 'git push -f'",
    "git submodule foreach git push -f",
    "git rebase --exec 'git push -f' main",
    "alias p='git push -f'; p",
    "alias p='git push'\np -f",
    # aliases and settings
    "git -c alias.p='push -f' p",
    "git -c alias.p=push p -f",
    "git -c alias.p='!git push -f' p",
    "git config alias.p 'push -f'",
    "git config --global alias.p push",
    "git config alias.p '!f() { git push \"$@\"; }; f'",
    "git config remote.origin.push +refs/heads/main",
    "git -c remote.origin.push=+HEAD push",
    "git config remote.origin.mirror true",
    "git remote add --mirror=push x y",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0='push -f' git p",
    # what can only be known when it runs
    "F=--force; git push $F",
    "F=--force; git push ${F}",
    'git push "$F"',
    "git push origin $BRANCH",
    'git push "$@"',
    "git push $(cat flags)",
    "git push `cat flags`",
    "git push *",
    "git push --forc?",
    'git push -"$X"',
    "git push origin HEAD:$X",
    "git $X -f",
    "git p$()ush -f",
    "A=pu; B=sh; git $A$B -f",
    "G=git; P=push; $G $P -f",
    "X='git push -f'; $X",
    'x=(git push -f); "${x[@]}"',
    'set -- git push -f; "$@"',
    "g${x}it pu${x}sh -f",
    "${x:-git} ${y:-push} -f",
    "bash -c 'git push $1' _ -f",
    "xargs git push < flags",
    "echo -f | xargs git push",
    "echo push -f | xargs git",
    "parallel git push ::: -f",
    "read X <<< 'git push -f'; $X",
    "mapfile -t X <<< 'git push -f'; ${X[0]}",
    "printf -v X '%s' 'git push -f'; $X",
    "sudo -s <<'E'\ngit push -f\nE",
    "ssh host <<E\ngit push -f\nE",
    "git push --force\r\nls\r\n",
    "[[ $x =~ (a|b) ]] && git push -f",
    "cat <<A <<'B C'\nx\nA\ny\nB C\ngit push -f",
    "git push <<<x -f",
    "tee >(git push -f)",
    "awk 'BEGIN{system(\"git push -f\")}'",
    # no end
    "git push --fo'rce",
    'git push "--force',
    "echo $(git push",
    "git push -f )",
    "echo 'a\npu\"sh",
]

FINE = [
    "git push",
    "git push origin main",
    "git push -u origin x",
    "git push -o ci.skip origin main",
    "git push -ofoo origin main",
    "git push --follow-tags",
    "git push --set-upstream origin feature/f-d",
    "git push --tags origin",
    "git push origin HEAD:refs/heads/main",
    "git push origin refs/heads/*:refs/heads/*",
    'git push origin "HEAD:$BRANCH"',
    "git push --no-force-with-lease origin main",
    "git push :",
    "git push origin main 2>&1 | tail -5",
    "git push origin main || echo failed",
    "git -C dir push origin main",
    'git -C "$DIR" status',
    'echo "git push --force is bad"',
    "echo git push -f",
    "git log --format=force",
    'grep -rn "push --force" .',
    "rg 'git push -f'",
    'git commit -m "no --force"',
    'git commit -am "git push -f"',
    "git commit -F - <<'EOF'\nnever git push --force; it's bad\nEOF",
    "git stash push -f",
    "git stash push --force",
    "git checkout -f main",
    "git branch -D x",
    "git fetch --force --prune origin +main",
    "git pull --rebase origin main",
    "git clean -fd",
    "git help push --force",
    "git config user.name x",
    "git config alias.s status",
    "git -c alias.s=status s -f",
    "git submodule update --init --force",
    "rm -f x; git push origin main",
    "git push origin main; rm -f x",
    "git push origin main & rm -rf y",
    "cat > notes.md <<'EOF'\nDon't `git push --force`.\nEOF",
    'cat > notes.md <<EOF\nit\'s "git push -f"\nEOF\ngit push origin main',
    "echo 'never git push --force' >> README.md && bash build.sh",
    "gh pr create --title x --body 'do not git push --force'",
    "sed -i 's/git push -f/git push/' x.sh",
    "python3 -c 'print(1)' && git push origin main",
    '"$PYTHON" -m pytest && git push origin main',
    "$CC $CFLAGS -o x x.c",
    'for f in *.py; do echo "$f"; done',
    "docker push -f image",
    "npm run push -- --force",
    "echo 'a' | bash",
    "bash -c 'git push origin main'",
    'echo "it\'s"',
    'case "$1" in push) echo -f;; esac',
    "arr=(a b c); echo ${arr[0]} $((1<<3))",
    "# git push -f",
    "ls # git push -f",
    "echo 'unbalanced",
    "",
    "   ",
    "git",
    "git push origin 'stash@{0}'",
    "git commit -m \"$(cat <<'EOF'\nIt's a push --force fix\nEOF\n)\" && git push origin main",
    'git add -A && git commit -m "fix: don\'t crash" && git push -u origin feat/x',
    "find . -name '*.py' -exec grep -l push {} +",
    "git bisect run pytest -k push",
    "for b in a b; do git checkout $b; done",
    "make push FORCE=1",
]


# Where git or another program is told by a setting, a variable, a file or code; each of these does push by force.
TOLD = [
    "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0='push -f'; git p origin main",
    "env GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.push GIT_CONFIG_VALUE_0=+main git push origin",
    "GIT_EDITOR='git push -f origin main;true' git commit --allow-empty",
    "git -c core.editor='git push -f origin main;true' commit --allow-empty",
    "GIT_SSH_COMMAND='git push -f origin main;true' git fetch ssh://x/y",
    "printf '[remote \"origin\"]\\n\\tpush = +main\\n' >> .git/config; git push origin",
    "mkdir -p .git/remotes; printf 'URL: ../bare.git\\nPush: +main:main\\n' > .git/remotes/r; git push r",
    "echo 'git push -f origin main' > .git/hooks/pre-commit; chmod +x .git/hooks/*; git commit --allow-empty -m x",
    "printf 'all:\\n\\tgit push -f origin main\\n' > Makefile; make",
    "python3 - <<'E'\nfrom subprocess import run\nrun(\n  ['git', 'push',\n   '--force', 'origin', 'main'])\nE",
]
FORCED += TOLD
FINE += [
    "GIT_EDITOR=true git rebase --continue",
    "GIT_SSH_COMMAND='ssh -i key -f' git push origin main",
    "git config core.editor 'code --wait'",
    "env FOO=1 git push origin main",
    "echo 'make lint' >> .git/hooks/pre-commit",
    "printf '[user]\\nname = x\\n' >> .git/config",
    "printf 'all:\\n\\techo hi\\n' > Makefile; make",
    "python3 - <<'E'\nrun(['git', 'push', 'origin', 'main'])\nrun(['rm', '-f', 'x'])\nE",
]


@pytest.fixture
def rewritten(tmp_path):
    """Makes a repository whose branch is not a descendant of what its remote has; gives also the remote's commit."""
    work = tmp_path / "made" / "work"
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    work.mkdir(parents=True)
    for words in (
        ["init", "-q", "--bare", "../bare.git"],
        ["init", "-q", "-b", "main"],
        *(["config", f"user.{key}", "a@example.com"] for key in ("name", "email")),
        ["commit", "-q", "--allow-empty", "-m", "theirs"],
        ["push", "-q", "../bare.git", "main"],
        [*author, "commit", "-q", "--amend", "--allow-empty", "-m", "ours"],
        ["remote", "add", "origin", "../bare.git"],
    ):
        subprocess.run(["git", *words], cwd=work, check=True)

    def copied(folder):
        shutil.copytree(work.parent, folder)
        told = ["git", "log", "-1", "--format=%s", "main"]
        return folder / "work", lambda: subprocess.check_output(told, cwd=folder / "bare.git")

    return copied


def test_what_is_told_elsewhere_to_push_by_force_does_not_arrive(hookline, rewritten):
    for at, command in enumerate(TOLD):
        work, remote = rewritten(hookline.folder / str(at))
        subprocess.run(
            ["bash", "-c", command], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert remote() == b"ours\n", f"{command!r} should be a danger"

    work, remote = rewritten(hookline.folder / "guarded")
    turn = {"tools": [{"name": "bash", "arguments": {"command": each}} for each in TOLD]}
    (work / "coder.py").write_text(
        "from hookline import Agent, Scripted\nfrom hookline.guards import no_force_push\n"
        f"agent = Agent(id='coder', tools=['bash'], model=Scripted([{turn!r}, 'done']), on_tool_start=[no_force_push])\n"
    )
    done = hookline("run", str(work / "coder.py"), "x", "--workspace", str(work))
    assert done.returncode == 0, done.stderr
    assert remote() == b"theirs\n"


@pytest.mark.parametrize("command", FORCED)
def test_a_force_push_is_caught(command):
    assert objection(command) is not None


@pytest.mark.parametrize("command", FINE)
def test_what_is_no_force_push_passes(command):
    assert objection(command) is None


@pytest.mark.parametrize("command", FORCED)
def test_it_is_caught_inside_another_shell_too(command):
    quoted = command.replace("'", "'\\''")
    assert objection(f"bash -c '{quoted}'") is not None


REASONS = {
    "git push -f": "'-f' overwrites commits",
    "git push origin $B": "only known when it runs",
    "git push 'x": "cannot be understood (a ' is not closed)",
    "git push origin :x": "':x' removes a branch",
    "git $X": "a subcommand that is only known when it runs",
}


@pytest.mark.parametrize(("command", "said"), REASONS.items())
def test_the_reason_says_what_is_wrong(command, said):
    assert said in str(objection(command))


INPUTS = [
    {"command": "git push -f"},
    {"cmd": "git push -f", "workdir": "/x"},
    {"script": "set -e\ngit push -f"},
    {"command": ["git", "push", "-f"]},
    {"command": ["bash", "-lc", "git push -f"]},
    {"command": ["git push -f"]},
    {"command": ["cd", "x", "&&", "git", "push", "-f"]},
    {"commands": ["ls", "git push -f"]},
    {"command": "git", "args": ["push", "-f"]},
    {"command": "bash", "args": ["-c", "git push -f"]},
    {"action": {"type": "exec", "command": ["git", "push", "-f"]}},
    {"anything": "git push -f"},
    "git push -f",
]


@pytest.mark.parametrize("payload", INPUTS)
def test_the_command_is_found_wherever_the_tool_has_it(payload):
    answer = no_force_push(None, context(payload))
    assert answer.action is HookAction.BLOCK
    assert str(answer.reason).startswith("no force-push: ")


FINE_INPUTS = [
    {"command": "ls", "description": "not git push -f"},
    {"command": ["echo", "a; git push -f"]},
    {"command": ["git", "push", "origin", "main"]},
    {"command": None},
    {"timeout": 3},
    {},
    None,
]


@pytest.mark.parametrize("payload", FINE_INPUTS)
def test_other_inputs_pass(payload):
    assert no_force_push(None, context(payload)).action is HookAction.CONTINUE


def test_a_lease_or_a_deletion_can_be_let_through():
    lease, delete = no_force_push_unless(lease=True), no_force_push_unless(delete=True)
    told = {
        command: [guard(None, context(command)).action.value for guard in (lease, delete)]
        for command in (
            "git push --force-with-lease",
            "git push origin :x",
            "git push -f",
            "git push --force",
        )
    }
    assert told == {
        "git push --force-with-lease": ["continue", "block"],
        "git push origin :x": ["block", "continue"],
        "git push -f": ["block", "block"],
        "git push --force": ["block", "block"],
    }


async def test_it_guards_an_agent_in_its_list_and_a_run(tmp_path):
    turns = [{"tools": [{"name": "bash", "arguments": {"command": "touch x; git push -f"}}]}, "Done."]
    listed = Agent(id="a", model=Scripted(turns), tools=["bash"], on_tool_start=[no_force_push])
    plain = Agent(id="b", model=Scripted(turns), tools=["bash"])
    for running in (
        listed.run("go", workspace=tmp_path),
        plain.run("go", workspace=tmp_path, hooks=[no_force_push]),
    ):
        result = await running
        assert result.tool_results[0].status == "blocked"
    assert not (tmp_path / "x").exists()


LONG = {
    "words": "git push origin " + "a " * 500_000,
    "quotes": "echo '" + "x" * 1_000_000 + "'; git push -f",
    "open quote": "git push '" + "x" * 1_000_000,
    "gits": "sudo " + "git " * 250_000,
    "braces": "echo " + "{" * 1_000_000,
    "pairs": "echo " + "{a,b}" * 200_000,
    "substitutions": "echo " + "$(" * 500_000,
    "parentheses": "(" * 1_000_000,
    "backticks": "`" * 999_999,
    "escaped backticks": "`" + "\\`" * 500_000,
    "pipes": "echo x|sh;" * 100_000,
    "here-documents": "cat <<A\n" * 100_000,
    "body": "cat <<A\n" + "it's $x `date`\n" * 60_000 + "A\ngit push -f",
    "variables": "$x" * 500_000,
    "assignments": "".join(f"a{n}=$a{n - 1}\n" for n in range(60_000)),
    "values of values": "a=x"
    + "$b" * 1000
    + "\nb="
    + "$c" * 1000
    + "\nc="
    + "$d" * 1000
    + "\nd="
    + "e" * 1000
    + "\n$a" * 99,
    "slashes": "\\" * 1_000_000,
    "evals": "eval " * 200_000,
    "shells": "bash -c " * 120_000,
    "dollars": "$" * 1_000_000,
    "ansi": "$'" + "\\'" * 500_000,
    "code": "python -c '" + "git push " * 100_000 + "'",
}


@pytest.mark.parametrize("command", LONG.values(), ids=LONG.keys())
def test_a_long_command_is_judged_in_the_end(command):
    objection(command[:120_000])
    assert len(command) <= LONGEST or "to be read in full" in objection(command)


# Texts whose reading once took more and more for each further character.
GREEDY = {
    "an alias of itself": 'alias a="a;a;a;a;a";a',
    "an alias of itself, often": 'alias a="a a";' + "a;" * 60_000,
    "an alias in git": "git " + "-c alias.a=b " * 9_000,
    "aliases and git": "git config "
    + " ".join(f"alias.a{n} b" for n in range(4_000))
    + ";"
    + "git x;" * 10_000,
    "a mirror that is none": "GIT_CONFIG_COUNT=" + "remote." * 18_000,
    "substitutions in one word": "$(a)" * 30_000,
    "the output of echoes": "eval " + "$(echo a) " * 13_000,
    "splits and substitutions": 'a="' + "x " * 3_000 + '";eval ' + "$a" * 8 + "$(echo b)" * 5_000,
    "back ticks": "`a`" * 40_000,
    "braces": "{a,b}" * 26_000,
    "wrapped": "sudo " + "git x " * 21_000,
    "echoes for a shell": "echo 'a b';" * 11_000 + "echo|sh",
    "evals of evals": 'eval \'eval "eval a";' * 5_000,
    "values of values": "".join(f"a{n}=$a{n + 1}$a{n + 1};" for n in range(7_000)),
    "words that xargs adds": "echo push|xargs env;" * 6_000,
    "arrays": "a+=(b $a);$a;" * 9_000,
    "trimmed values": "a=" + "x" * 190 + ";" + "${a%%*y}${a##*y}" * 7_000,
    "files that are run": "echo a > f;sh f;" * 8_000,
    "outputs of outputs": "a=$(echo $a$a);" * 8_000,
    "arguments of shells": "sh -c '$@' _ a b;" * 7_000,
    "formats": "printf '" + "%s" * 50_000 + "' a b;",
}


def operations(command: str, steps: int = MOST_STEPS) -> int:
    """How many lines of the guards' own code a decision takes, whatever machine it is on."""
    count = 0

    def line(frame, event, argument):
        nonlocal count
        if event == "line":
            count += 1

    def trace(frame, event, argument):
        return line if "guards" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        objection(command, work=StepBudget(steps))
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("command", GREEDY.values(), ids=GREEDY.keys())
def test_no_text_takes_more_than_a_decision_may_take(command):
    """A step is a few lines of code, so that steps that are counted hold for the time that nobody measures here."""
    steps = 10_000
    assert operations(command[:LONGEST], steps) < 30 * steps


PIECES = "a;|$(a)|`a`|$a |git x;|sudo x;|<(a) |{a,b} |x=$y;|'a' |a=(b);|${x:-a} |${a%b} |echo a > f;|sh <<< a;|$(echo a) "


@pytest.mark.parametrize("piece", [*PIECES.split("|"), "echo a|xargs b;"])
def test_twice_the_text_takes_at_most_about_twice_the_work(piece):
    once, twice = operations(piece * 400), operations(piece * 800)
    assert twice < 2.3 * once


def test_the_steps_of_one_call_are_counted_over_all_its_commands():
    one = "a $b;" * 1_500
    assert objection(one) is None
    answer = no_force_push(None, context({"commands": [one] * 100}))
    assert (answer.action, "to be read in full" in answer.reason) == (HookAction.BLOCK, True)


@pytest.mark.parametrize("spelling", ["git push -f", "g${x}it pu${x}sh -f", "ls", "$a$b"])
@pytest.mark.parametrize(
    "filling", ["#" * LONGEST, "a;" * 70_000, "x=$y;" * 26_000], ids=["long", "often", "values"]
)
def test_what_is_not_read_to_its_end_is_never_let_through(spelling, filling):
    assert objection(f"{filling}\n{spelling}") is not None
    assert objection(["sh", "-c", f"{filling}\n{spelling}"]) is not None


ORDINARY = {
    "a large file": "cat > f <<'EOF'\n" + "an ordinary line with $x and `y`, it's fine\n" * 2_500 + "EOF\n",
    "a large program": "python3 - <<'EOF'\n" + "print('git push', x)\n" * 5_000 + "EOF\n",
    "a long script": "set -e\n" + 'mkdir -p "$D/b" && cp -r src "$D/y" | tee -a log.txt\n' * 500,
    "many words": "rm -f " + "build/object-file.o " * 6_000,
}


@pytest.mark.parametrize("command", ORDINARY.values(), ids=ORDINARY.keys())
def test_what_people_write_is_read_in_full(command):
    assert objection(command) is None
    assert objection(f"{command}\ngit push -f") is not None
    assert "overwrites" in objection(f"{command}\ngit push -f")


@given(st.text(max_size=60) | st.text("git push-f'\"\\$(){}`|;&<>\n#=", max_size=60))
@example("<")
@example("$(")
@example("a<<")
def test_no_text_breaks_it(text):
    objection(text)
    objection([text])


def spelled(letters: str, ways: list[int]) -> str:
    """A word with each letter quoted in one of the ways bash has."""
    forms = ["{}", "'{}'", '"{}"', "\\{}", "$'{}'", "''{}", "\\\n{}"]
    return "".join(forms[way].format(letter) for letter, way in zip(letters, ways, strict=True))


@st.composite
def force_pushes(draw):
    words = [
        "git",
        "push",
        *draw(st.permutations([draw(st.sampled_from(["-f", "--force", "+x", "-fu"])), "origin"])),
    ]
    ways = st.integers(0, 6)
    text = [spelled(word, draw(st.lists(ways, min_size=len(word), max_size=len(word)))) for word in words]
    gaps = draw(
        st.lists(st.sampled_from([" ", "\t", "  ", " \\\n"]), min_size=len(words), max_size=len(words))
    )
    before = draw(st.sampled_from(["", "ls; ", "true && ", "(", "{ ", "X=1 ", "\n", "sudo "]))
    return before + "".join(word + gap for word, gap in zip(text, gaps, strict=True)).rstrip(" \t\\\n")


@given(force_pushes())
def test_a_force_push_is_caught_however_it_is_quoted(command):
    assert objection(command) is not None


def test_bash_reads_our_spellings_as_we_do():
    word = spelled("--force", [0, 1, 2, 3, 4, 5, 6])
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True)
    assert done.stdout == "--force"


def context(payload) -> HookContext:
    return HookContext(
        workflow_id="w", point="tool.start", current_tool="bash", tool_kind="shell", current_payload=payload
    )
