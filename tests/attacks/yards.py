"""A place to try a spelling for real: a bare remote, a clone whose branches do not descend from it, and a home."""

import os
import re
import shutil
import subprocess
from pathlib import Path

BRANCHES = ("main", "side")
_AUTHOR = {
    f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
_SETTING = {"protocol.file.allow": "always", "init.templateDir": "", "advice.detachedHead": "false"}


def environ(home: Path) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    return {**given, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb"}


class Yard:
    """The remote and its clones, made once; each try has a copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = folder / "made"
        self.work = self.made / "work"
        (self.made / "home").mkdir(parents=True)
        self._git("init", "-q", "--bare", "-b", "main", "bare.git", at=self.made)
        self._git("clone", "-q", "bare.git", "work", at=self.made)
        self._git("checkout", "-q", "-b", "main")
        for message in ("first", "second"):
            self._git("commit", "-q", "--allow-empty", "-m", message)
        for branch in BRANCHES:
            self._git("checkout", "-q", "-B", branch, "main")
            (self.work / "README").write_text(f"theirs {branch}\n")
            self._git("add", "README")
            self._git("commit", "-q", "-m", f"theirs {branch}")
            self._git("push", "-q", "-u", "origin", branch)
            self._git("reset", "-q", "--hard", "HEAD~1")
            (self.work / "README").write_text(f"ours {branch}\nmore\n")
            (self.work / "lib").mkdir(exist_ok=True)
            (self.work / "lib" / "x").write_text("x")
            self._git("add", "README", "lib")
            self._git("commit", "-q", "-m", f"ours {branch}")
        self._git("init", "-q", "sub")
        self._git("commit", "-q", "--allow-empty", "-m", "sub", at=self.work / "sub")
        self._git("checkout", "-q", "main")
        self._git("submodule", "--quiet", "add", "./sub", "sub")
        self._git("commit", "-q", "-m", "ours main, with a submodule")
        (self.work / "release.sh").write_text("#!/bin/sh\ngit push -f\n")
        (self.work / "release.sh").chmod(0o755)
        (self.work / "release.py").write_text("import os\nos.system('git push -f')\n")
        (self.work / "tools.mk").write_text("release:\n\tgit push -f\n")
        self._git("config", "alias.publish", "push -f")
        shutil.rmtree(self.work / ".git/hooks", ignore_errors=True)
        shutil.rmtree(self.made / "bare.git/hooks", ignore_errors=True)
        self.before = self._remote(self.made)

    def _git(self, *words: str, at: Path | None = None) -> None:
        settings = [each for name, value in _SETTING.items() for each in ("-c", f"{name}={value}")]
        given = {**environ(self.made / "home"), **_AUTHOR}
        subprocess.run(
            ["git", *settings, *words], cwd=at or self.work, env=given, check=True, capture_output=True
        )

    @staticmethod
    def _remote(place: Path) -> dict[str, str]:
        heads = place / "bare.git/refs/heads"
        return {name: (heads / name).read_text() if (heads / name).exists() else "" for name in BRANCHES}

    def overwrites(self, name: str, text: str, shell: str = "bash") -> bool:
        """True if the text, run by a shell, overwrites or removes a branch of the remote."""
        place = self.folder / name
        shutil.copytree(self.made, place, symlinks=True)
        config = place / "work/.git/config"
        config.write_text(config.read_text().replace(str(self.made), str(place)))
        try:
            run(text, place / "work", place / "home", shell)
            return self._remote(place) != self.before
        finally:
            shutil.rmtree(place, ignore_errors=True)


_PATCH = "--- {0}\n+++ {0}\n@@ -1 +1 @@\n-{1}\n+x\n"


class Fence:
    """A workspace and what lies around it, made once; each try has a copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = folder / "made"
        work = self.made / "work"
        for name in ("home", "out", "empty", "work/src"):
            (self.made / name).mkdir(parents=True)
        for name in ("f", "out/f", "out/g", "work/a", "work/src/a"):
            (self.made / name).write_text("f\n" if name == "f" else "a\n")
        (work / "ln-out").symlink_to("..")
        (work / "ln-f").symlink_to("../f")
        (work / "m").write_text("here:\n\ttouch new\nup:\n\ttouch ../new\nnew:\n\ttouch new\n")
        (work / "up.sh").write_text("#!/bin/sh\ntouch ../new\n")
        (work / "up.sh").chmod(0o755)
        (work / "name").write_text("../new\n")
        (work / "d.patch").write_text(_PATCH.format("a", "a"))
        (work / "up.patch").write_text(_PATCH.format("f", "f"))
        for text in ("gzip -c f > z.gz", "cd work; tar cf t.tar src"):
            subprocess.run(["sh", "-c", text], cwd=self.made, check=True)
        for words in (
            ["init", "-q"],
            ["add", "a", "src"],
            ["commit", "-q", "-m", "first"],
            ["commit", "-q", "--allow-empty", "-m", "second"],
        ):
            given = {**environ(self.made / "home"), **_AUTHOR}
            subprocess.run(["git", *words], cwd=work, env=given, check=True)

    def copied(self, name: str) -> Path:
        shutil.copytree(self.made, self.folder / name, symlinks=True)
        return self.folder / name

    @staticmethod
    def text(line: str, place: Path) -> str:
        """A line of the table, with the folder above the workspace where `$P` stands."""
        return re.sub(r"\$P\b", str(place), line)

    def escapes(self, text: str, place: Path, shell: str = "bash") -> bool:
        """True if the text, run by a shell in a copy, changes anything outside the workspace."""
        before = _around(place)
        run(text, place / "work", place / "home", shell)
        return _around(place) != before


def _around(place: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        if place / "work" in (path, *path.parents):
            continue
        status = path.lstat()
        kept = None if path.is_dir() else (status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        found[str(path)] = (status.st_mode, kept)
    return found


def run(text: str, folder: Path, home: Path, shell: str = "bash") -> None:
    subprocess.run(
        [shell, "-c", text],
        cwd=folder,
        env={**environ(home), **_AUTHOR},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
        start_new_session=True,
    )
