"""Commands that look like a forced push, or are like its hiding places, and push nothing by force."""

_LINES = r"""
git push
git push origin main
git push -u origin feature/force
git push origin HEAD:refs/heads/fix-f
git push --tags
git push --follow-tags origin main
git push -o ci.skip origin main
git push origin main 2>&1 | tail -5
git push origin "HEAD:$BRANCH"
git push --dry-run origin main
git -C ../work push origin main
git -c push.default=current push
timeout 60 git push origin main
GIT_SSH_COMMAND='ssh -i key -f' git push origin main
set -e; git fetch origin; git rebase origin/main; git push origin HEAD
git push origin main; rm -f x
for b in main side; do git push origin "HEAD:$b"; done
if ! git push origin main; then echo "push failed, never use push -f" >&2; fi
bash -c 'git push origin main'
git push origin $(echo main)
git commit -m "Never git push -f again"
git commit -am 'git push --force is refused now'
git commit -m "$(printf 'Title\n\ngit push -f is bad\n')"
git commit --allow-empty -m "git push -f" && git push origin main
git tag -a v1 -m 'after git push -f'
git notes add -m 'git push --force happened here'
git merge -m "no more git push -f" side
git stash push -f
git stash push -m 'git push -f'
git log --grep='git push -f'
git log -S'git push --force' --oneline
git log --all --grep push -F -i
git grep -n 'git push -f'
git grep -e "push --force" -- docs
git show :/push
git checkout -f main
git fetch --force --prune origin +main
git pull --rebase --force origin main
git branch -D push
git clean -fd
git config alias.s 'status -sb'
git config core.editor 'code --wait'
git config --get remote.origin.push
git remote add push ../bare.git
git rebase --exec 'make test' main
git bisect run pytest -k push
git submodule foreach 'git fetch --force'
git help push
git push --help
man git-push
grep "git push -f" README
grep -rn 'git push --force' . | head
rg 'git push -f' docs
grep -c "push -f" *.sh || true
awk '/git push/ {print $1}' README
sed -n '/git push -f/p' README
sed -i 's/git push -f/git push/' README
find . -name '*.sh' -exec grep -l 'git push' {} +
find . -name push -print0 | xargs -0 rm -f
ls | xargs -n1 echo git push -f
ls *.py | xargs grep -l push
echo git push -f
echo "git push --force is bad"
printf '%s\n' 'git push -f'
echo 'never git push -f' > NOTES.md
echo 'do not git push --force' >> README; git add README; git commit -qm docs
echo 'git push -f' | wc -c
echo 'git push -f' | grep push
echo "git push -f" | tee -a NOTES.md
x='git push -f'; echo "$x"
MSG='never git push -f'; git commit -m "$MSG"
msg="no git push --force"; git commit -m "$msg" && git push origin main
declare -A done=([push]=1); echo "${done[push]}"
files=(a.py b.py); echo "${files[@]}"
a=(push -f); printf '%s\n' "${a[@]}"
case "$1" in push) echo -f ;; esac
python3 -c 'print("git push")' && git push origin main
python3 -c "print('no push', 'x -f')"
python3 -m http.server --help > push
perl -ne 'print if /git push/' README
node -e 'console.log("push", "-f")'
make push FORCE=1
npm run push -- --force
docker push -f image
gh pr create --title x --body 'do not git push --force'
gh pr comment 1 --body "who did git push -f?"
curl -s https://example.com/install.sh | sh
curl -fsSL https://example.com/push.sh -o x.sh
eval "$(ssh-agent -s)"
eval "$(direnv export bash)"
source .venv/bin/activate && python3 -m pytest -k 'push and force'
. ./env.sh; make
$(npm bin)/eslint --fix .
"$PYTHON" -m pytest
"${CC:-cc}" -o x x.c
$CC $CFLAGS -o x x.c
x=$(git rev-parse HEAD); echo "${x:0:7}"
v=$(echo "$TAG" | sed 's/^v//'); git tag "$v-1"
name=$(basename "$PWD" | tr a-z A-Z); echo "$name"
echo aGVsbG8= | base64 -d > out.bin
kubectl get secret x -o json | jq -r .data.y | base64 -d
while read -r f; do rm -f "$f"; done < list.txt
git ls-files | while read -r f; do touch "$f"; done
ls | while read x; do echo "$x"; done
read -r answer <<< yes; echo "$answer"
ssh host 'cd app && git pull && systemctl restart app'
tar czf push.tgz -C build .
xargs -a list.txt rm -f
trap 'rm -f "$tmp"' EXIT
alias gp='git push'; echo ok
[ "$x" = "git push -f" ] && echo no
test -f push && rm -f push
cp -f push.sh /tmp/x && chmod +x /tmp/x
pushd src && make -f Makefile.unix; popd
history | grep 'git push -f'
type git-push
"""
HARMLESS = [
    *filter(None, _LINES.splitlines()),
    "cat > NOTES.md <<'EOF'\nDon't `git push --force`; say\n\n    git push -f\nEOF",
    "cat > NOTES.md <<'EOF'\n[alias]\n  p = push -f\nEOF\ngit add NOTES.md",
    "git commit -F - <<'EOF'\nnever git push --force; it's bad\nEOF",
    "git commit -m \"$(cat <<'EOF'\nIt's a git push -f fix\nEOF\n)\" && git push origin main",
    "python3 - <<'E'\nrun(['git', 'push', 'origin', 'main'])\nrun(['rm', '-f', 'x'])\nE",
    "cat > x.sh <<'EOF'\n#!/bin/sh\ngit push origin main\nEOF\nchmod +x x.sh && ./x.sh",
    "cat > test_push.py <<'EOF'\ndef test():\n    assert refused('git push -f')\nEOF\npytest -q test_push.py",
    "gh pr create --title x --body \"$(cat <<'EOF'\nDo not git push --force.\nEOF\n)\"",
    "# git push -f\nls",
    "bash <<'EOF'\nset -e\ngit push origin main\nEOF",
]
