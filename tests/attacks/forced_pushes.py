"""Spellings of a forced push, and harmless commands that look like one. Each text is run by bash in a folder of `Pushed`.

`main` and `side` of the remote hold commits that ours do not descend from. The remote is `../bare.git`, also `origin`.
"""

_LINES = r"""
git push -f
git push --force
git push -f origin main
git push -fu origin main
git push -uf origin main
git push -vf origin side
git push -qf
git push origin main -f
git push --force-with-lease=main:$(git ls-remote origin main | cut -f1) origin main
git fetch -q; git push --force-with-lease
git fetch -q; git push --force-with-lease --force-if-includes; git push --forc
git push origin +main
git push origin +main:main
git push origin +HEAD:main
git push origin +HEAD:refs/heads/main
git push origin '+refs/heads/*:refs/heads/*'
git push -- origin +main
git push --repo=origin -f
git push --no-verify --atomic --force origin main side
git push --mirror
git push --mir origin
git push origin --all -f
git push --delete origin side
git push -d origin side
git push --del origin side
git push origin :side
git push origin :refs/heads/side
git push --prune origin 'refs/heads/m*:refs/heads/*'
git push ../bare.git +main
git push file://$PWD/../bare.git +main
git send-pack --force ../bare.git main
git send-pack ../bare.git +main
git push --porcelain --signed=if-asked --force
git push -o x -f 2>/dev/null; git push origin --force
$(git --exec-path)/git-push -f
/usr/lib/git-core/git-push -f
/usr/lib/git-core/git push -f
git-push -f || /usr/lib/git-core/git-send-pack --force ../bare.git main
git -C . push -f
git -C ../work push -f
git --git-dir=.git push -f
git --git-dir .git --work-tree . push -f
GIT_DIR=.git git push -f
git -p push -f
git --no-pager push -f
git --literal-pathspecs --exec-path=/usr/lib/git-core push -f
git -c a.b=c push -f
git -c push.default=current push -f
cd .. && git -C work push -f
cd .git && git push -f origin main
pushd . && git push -f
git -c alias.p='push -f' p
git -c alias.p=push p -f
git -c alias.p='!git push -f' p
git -c alias.p='!f() { git push "$@"; }; f' p -f
git -c alias.a=b -c alias.b='push -f' a
git config alias.p 'push -f'; git p
git config alias.p push && git p --force
git config alias.p '!git push' && git p --force
git config --local --add alias.p 'push --force' && git p
X='push -f' git --config-env=alias.p=X p
export X='push -f'; git --config-env alias.p=X p
X=+main git --config-env=remote.origin.push=X push origin
X=true git --config-env=remote.origin.mirror=X push origin
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0='push -f' git p
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0='push -f'; git p
env GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.push GIT_CONFIG_VALUE_0=+main git push origin
k=alias.p GIT_CONFIG_COUNT=1; export GIT_CONFIG_COUNT GIT_CONFIG_KEY_0=$k GIT_CONFIG_VALUE_0='push -f'; git p
GIT_CONFIG_PARAMETERS="'alias.p'='push -f'" git p
printf '[alias]\np = push -f\n' > f; GIT_CONFIG_GLOBAL=$PWD/f git p
printf '[alias]\np = push -f\n' > f; git -c include.path=$PWD/f p
printf '[alias]\np = push -f\n' > f; git config include.path $PWD/f; git p
printf '[alias]\np = push -f\n' > f; git config include.path ../f; git p
printf '[alias]\np = push -f\n' >> .git/config; git p
printf '[alias]\np = push -f\n' > ~/.gitconfig; git p
mkdir h; printf '[alias]\np = push -f\n' > h/.gitconfig; HOME=$PWD/h git p
mkdir -p h/git; printf '[alias]\np = push -f\n' > h/git/config; XDG_CONFIG_HOME=$PWD/h git p
printf '[remote "origin"]\npush = +main\n' >> .git/config; git push origin
git config remote.origin.push +main; git push origin
git config remote.origin.push +refs/heads/main:refs/heads/main; git push
git config --add remote.origin.push +main; git push
git -c remote.origin.push=+main push
git config remote.origin.mirror true; git push origin
git -c remote.origin.mirror=1 push origin
git remote add --mirror=push x ../bare.git; git push x
mkdir -p .git/remotes; printf 'URL: ../bare.git\nPush: +main:main\n' > .git/remotes/r; git push r
mkdir -p .git/hooks; printf '#!/bin/sh\ngit push -f\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*; git commit -q --allow-empty -m x
mkdir h; printf '#!/bin/sh\ngit push -f\n' > h/pre-commit; chmod +x h/*; git -c core.hooksPath=h commit -q --allow-empty -m x
mkdir h; printf '#!/bin/sh\ngit push -f\n' > h/pre-commit; chmod +x h/*; git config core.hooksPath h; git commit -q --allow-empty -m x
mkdir -p .git/hooks; printf '#!/bin/sh\ngit push -f\n' > x; chmod +x x; cp x .git/hooks/post-checkout; git checkout -q side
sed -i 's/^\[remote "origin"\]/&\npush = +main/' .git/config; git push origin
python3 -c "open('.git/config', 'a').write('[alias]\np = push -f\n')"; git p
GIT_EDITOR='git push -f;true' git commit --allow-empty
EDITOR='git push -f;true' git commit --allow-empty
GIT_SEQUENCE_EDITOR='git push -f;true' git rebase -i --root
git -c core.editor='git push -f;true' commit --allow-empty
git -c sequence.editor='git push -f;true' rebase -i --root
git -c core.sshCommand='git push -f;true' fetch ssh://x/y
GIT_SSH_COMMAND='git push -f;true' git fetch ssh://x/y
git -c core.fsmonitor='git push -f;true' status
git -c diff.external='git push -f;true' diff HEAD~1
GIT_EXTERNAL_DIFF='git push -f;true' git diff HEAD~1
git difftool -y -x 'git push -f;true' HEAD~1
git grep -O'git push -f;true' ours
git grep --open-files-in-pager='git push -f;true' ours
git fetch --upload-pack='git push -f;git-upload-pack' ../bare.git
git ls-remote --upload-pack='git push -f;git-upload-pack' ../bare.git
git push --receive-pack='git push -f;git-receive-pack' ../bare.git main:new
git clone -q -u 'git push -f;git-upload-pack' ../bare.git c
git clone -q --upload-pack='git push -f;git-upload-pack' ../bare.git c
git -c protocol.ext.allow=always ls-remote 'ext::git push -f'
git bisect start HEAD HEAD~1 && git bisect run git push -f
git config x.y $PWD; git for-each-repo --config=x.y push -f
git filter-branch --msg-filter 'git push -f >&2; cat' HEAD~1..HEAD
git archive --remote=../bare.git --exec='git push -f;git-upload-archive' HEAD
git stash list; git commit -q --allow-empty -m x; git push -f
env git push -f
env -i PATH="$PATH" HOME="$HOME" git push -f
env -S 'git push -f'
env -S'git push -f'
env --split-string='git push -f'
env -vS 'git push -f'
env X=1 sh -c 'git push -f'
sh -c 'env -- git push -f'
nice git push -f
nice -n 5 git push -f
nohup git push -f >/dev/null
timeout 20 git push -f
timeout -k 1 20 sh -c 'git push -f'
stdbuf -oL git push -f
setsid -w git push -f
ionice -c3 git push -f
taskset 1 git push -f
prlimit --nofile=100 git push -f
setpriv git push -f
start-stop-daemon --start --pidfile x.pid --chdir . --exec /usr/bin/git -- push -f
script -qc 'git push -f' /dev/null
script -q -c'git push -f' /dev/null
script --command='git push -f' /dev/null
flock x git push -f
flock x -c 'git push -f'
time git push -f
time -p git push -f
command git push -f
command -p git push -f
exec git push -f
exec -a x git push -f
exec -c /usr/bin/git push -f
builtin eval git push -f
builtin command git push -f
coproc git push -f; wait
coproc X { git push -f; }; wait
coproc sh; echo 'git push -f' >&${COPROC[1]}; eval "exec ${COPROC[1]}>&-"; wait
find . -maxdepth 0 -exec git push -f \;
find . -maxdepth 0 -exec sh -c 'git push -f' \;
find . -maxdepth 0 -execdir git -C {} push -f \;
find .git -name HEAD -maxdepth 1 -exec sh -c 'git "$@"' _ push -f \;
find push -maxdepth 0 -exec git {} -f \; 2>/dev/null || { touch push; find push -exec git {} -f \; ; }
xargs git push -f < /dev/null
echo push -f | xargs git
echo -f | xargs git push
echo git push -f | xargs env
echo git push -f | xargs -r nice
echo git push -f | xargs -I% sh -c %
echo git push -f | xargs -I{} bash -c '{}'
echo 'git push -f' | xargs -d '\n' sh -c
printf 'git\0push\0-f' | xargs -0 env
printf 'git\npush\n-f\n' | xargs timeout 20
echo push | xargs -I@ git @ -f
xargs env <<< 'git push -f'
xargs -a <(echo git push -f) env
echo git push -f > f; xargs -a f env
echo git push -f > f; xargs nice < f
xargs sh -c '"$@"' _ <<< 'git push -f'
echo x | xargs perl -e 'system("git push -f")'
awk 'BEGIN{system("git push -f")}'
awk 'BEGIN{"git push -f 2>&1" | getline}'
awk 'BEGIN{print "git push -f" | "sh"}'
echo git push -f | awk '{system($0)}'
awk -f <(echo 'BEGIN{system("git push -f")}')
sed -n '1e git push -f' README
sed 's/.*/git push -f/e' README
echo git push -f | sed e
perl -e 'system("git push -f")'
perl -e 'system qw(git push -f)'
perl -e 'exec "git", "push", "-f"'
perl -e '`git push -f`'
perl -e 'open(F, "git push -f|"); <F>'
perl -Mstrict -we 'system("git", "push", "origin", "+main")'
perl <<< 'system("git push -f")'
echo 'system("git push -f")' | perl
env perl -e 'system("git push -f")'
python3 -c "import os; os.system('git push -f')"
python3 -c "import subprocess as s; s.run(['git', 'push', '--force'])"
python3 -c "import subprocess as s; s.run('git push -f'.split())"
python3 -c "import os; os.execlp('git', 'git', 'push', '-f')"
python3 -c "__import__('os').popen('git push -f').read()"
python3 -c "import os; os.system('git pu' + 'sh -f')"
python3 -c "import os; os.system('git pu' 'sh -f')"
python3 <<< "import os; os.system('git push -f')"
echo "import os; os.system('git push -f')" | python3
echo "import os; os.system('git push -f')" | python3 -
echo "import os; os.system('git push -f')" > x.py; python3 x.py
nice python3 -c "import os; os.system('git push -f')"
node -e 'require("child_process").execSync("git push -f")'
node -p 'require("child_process").spawnSync("git", ["push", "-f"])'
make -f - <<< 'x:; git push -f'
printf 'x:\n\tgit push -f\n' | make -f -
printf 'x:\n\tgit push -f\n' > Makefile; make
printf 'x:; git push -f\n' > m; make -f m
make --eval='x:; git push -f' x
make -E '$(shell git push -f)' -f /dev/null
printf 'x:; $(C)\n' > m; make -f m C='git push -f'
find README -exec perl -e 'exec qw(git push -f)' \;
tar cf /dev/null --checkpoint=1 --checkpoint-action=exec='git push -f' README
tar cf x.tar README; tar xf x.tar --to-command='git push -f'
tar cf /dev/null -I 'git push -f;cat' README; tar cf x.tar -I 'git push -f' README
split --filter='git push -f' README
sort --compress-program=x README; env -S 'git push -f'
bash -c 'git push -f'
sh -c 'git push -f'
dash -c 'git push -f'
bash -ec 'git push -f'
bash -c -- 'git push -f'
bash -O extglob -c 'git push -f'
bash --norc --noprofile -c 'git push -f'
bash +x -c 'git push -f'
bash -c '"$@"' _ git push -f
bash -c '$*' _ git push -f
bash -c '${@}' _ git push -f
bash -c '"${@:1}"' _ git push -f
bash -c '"${@:1:3}"' _ git push -f
bash -c '$1 $2 $3' _ git push -f
bash -c '"$1" "$2" "$3"' _ git push -f
bash -c '$0' 'git push -f'
sh -c '$0 "$@"' git push -f
sh -c '"$0" "$@"' git push -f
sh -c 'exec "$@"' _ git push -f
sh -c 'eval "$1"' _ 'git push -f'
sh -c 'eval "$*"' _ git push -f
sh -c 'shift; "$@"' _ x git push -f
sh -c 'git "$@"' _ push -f
sh -c 'git push "$@"' _ -f
sh -c 'for a; do $a; done' _ 'git push -f'
sh -c 'c=$1; $c' _ 'git push -f'
bash -c 'bash -c "$0"' 'git push -f'
bash <<< 'git push -f'
bash <<< "git push -f"
bash <<< $'git push\t-f'
bash -s <<< 'git push -f'
bash -s -- push -f <<< 'git "$@"'
bash -s git push -f <<< '"$@"'
bash /dev/stdin <<< 'git push -f'
bash /dev/fd/3 3<<< 'git push -f'
bash <(echo git push -f)
bash < <(echo git push -f)
bash < <(printf '%s ' git push -f)
. /dev/stdin <<< 'git push -f'
source /dev/stdin <<< 'git push -f'
source <(echo git push -f)
. <(printf 'git %s -f' push)
exec 3<<< 'git push -f'; sh <&3
exec 3<<< 'git push -f'; source /dev/fd/3
echo 'git push -f' | sh
echo 'git push -f' | bash -s
echo git push -f | bash -x
echo git push -f | tee x | sh
echo git push -f | cat | cat | sh
echo git push -f | (cat | sh)
echo git push -f | { read x; $x; }
echo git push -f | while read x; do $x; done
echo git push -f | if true; then sh; fi
while read x; do $x; done <<< 'git push -f'
while read -r a b c; do "$a" "$b" "$c"; done <<< 'git push -f'
printf %s 'git push -f' | sh
printf '%s %s %s' git push -f | sh
printf 'git pu%s -f' sh | sh
printf '\147it push -f' | sh
printf 'git \x70ush -f' | sh
echo -e 'git \x70ush -f' | sh
printf '%b' 'git \160ush -f' | sh
printf 'git %b -f' '\x70ush' | sh
cat <<< 'git push -f' | sh
{ echo git; echo push; echo -f; } | xargs env
{ echo -n git; echo ' push -f'; } | sh
(printf 'git '; printf 'push '; printf %s -f) | sh
echo Z2l0IHB1c2ggLWYK | base64 -d | sh
eval "$(echo Z2l0IHB1c2ggLWYK | base64 -d)"
bash -c "$(base64 -d <<< Z2l0IHB1c2ggLWYK)"
source <(base64 --decode <<< Z2l0IHB1c2ggLWYK)
$(base64 -d <<< Z2l0IHB1c2ggLWYK)
x=$(echo Z2l0IHB1c2ggLWYK | base64 -d); $x
x=$(echo Z2l0IHB1c2ggLWYK | base64 -d); eval "$x"
echo Z2l0IHB1c2ggLWYK > f; base64 -d f | sh
echo Z2l0IHB1c2ggLWYK > f; base64 -d < f > g; sh g
echo f- hsup tig | rev | sh
echo Z2l0IHB1c2ggLWYK | base64 -d | sh; echo true | sh
echo 'git pu""sh -f' | sh; echo x | perl -ne 1
echo git push -f | sh; sh -c true; true | bash
echo 'git push -f' > f; sh f; echo > f; sh f
$(echo f- hsup tig | rev)
eval $(rev <<< 'f- hsup tig')
echo tvg chfu -s | tr a-z n-za-m | sh
echo 'git puXsh -f' | tr -d X | sh
echo 'git puXsh -f' | sed s/X// | sh
$(echo 'git puXsh -f' | sed s/X//)
eval "$(echo git_push_-f | tr _ ' ')"
xxd -r -p <<< 67697420707573682d66 >/dev/null; echo Z2l0IHB1c2ggLWYK | python3 -c 'import base64,sys; print(base64.b64decode(sys.stdin.read()).decode())' | sh
perl -e 'print pack("H*", "6769742070757368202d66")' | sh
awk 'BEGIN{print "git push -f"}' | sh
python3 -c "print('git push -f')" | sh
eval git push -f
eval 'git push -f'
eval "git" 'push' -f
eval "g""it pu"'sh -f'
eval eval eval git push -f
eval "$(echo git push -f)"
eval $(echo git push -f)
eval "`echo git push -f`"
eval "$(cat <<< 'git push -f')"
eval "$(printf 'git %s -f' push)"
eval "git $(echo push) -f"
eval "$(printf '%s ' git push -f)"
eval \$\(echo git push -f\)
x='git push -f'; eval "$x"
x='git push -f'; eval $x
x='git pu'; y='sh -f'; eval "$x$y"
$(echo git push -f)
$(echo git) push -f
$(echo git) $(echo push) -f
$(printf git) $(printf push) -f
`echo git` `echo push` -f
$(which git) push -f
$(command -v git) push -f
$(type -p git) push -f
"$(which git)" "push" "-f"
g=$(which git); $g push -f
$(printf '\147it') pu$(echo sh) -f
$(echo gi)$(echo t) push -f
gi$(echo t) push -f
git $(echo push) -f
git push $(echo -f)
git `echo push -f`
git pu$(echo sh) -f
git pu$()sh -f
git p``ush -f
"git" "push" "-f"
'git' 'push' '-f'
g\it p\ush \-f
g''it pu""sh -''f
gi$'t' push -f
$'git' $'push' $'-f'
$'\x67\x69\x74' $'\x70ush' -f
$'\147it' $'\160\165sh' $'\55f'
$'\u0067it' push -f
git $'\x70ush' -f
git $"push" -f
git pu${x}sh -f
g${x}it pu$x''sh -f
g$@it pu$*sh -f
gi"$@"t push -f
git pu${x:+y}sh -f
git ${a:-push} -f
${a:-git} ${b:-push} -f
${a-git} push ${c:--f}
${a:=git} push -f
git p${a:-us}h -f
${a:-git push -f}
{git,push,-f}
{git,push,-f,origin}
git {push,-f}
git push {-f,origin,main}
g{i,}t push -f 2>/dev/null; {git,push} -f
git push -{f,}u 2>/dev/null; git push --{force,quiet}
git push origin {+main,+side}
git push -{e..f} 2>/dev/null; git push -{f..f} || git push --for{c..c}e
git${IFS}push${IFS}-f
git$IFS'push'$IFS-f
IFS=,; x=git,push,-f; $x
IFS=:; x=git:push:-f; $x
IFS=x; c=gitxpushx-f; $c
IFS=_; c=push_-f; git $c
git	push	-f
/usr/bin/git push -f
/usr/bin/../bin/git push -f
//usr//bin//git push -f
/usr/bin/g[i]t push -f
/usr/bin/gi[t] push -f
/usr/bin/g?t push -f
/usr/b?n/g?t push -f
/usr/bin/[g]it push -f
/*/bin/git push -f
/usr/lib/git-core/git-pu?h -f
/usr/bin/ba?h -c 'git push -f'
/bin/s[h] -c 'git push -f'
a=git; $a push -f
a=git b=push c=-f; $a $b $c
a=git; b=push; "$a" "$b" -f
a=gi b=t; $a$b push -f
a=gi; b=t; c=pu; d=sh; $a$b $c$d -f
a='git push -f'; $a
a='git push'; $a -f
a='git pu'; b='sh -f'; $a$b
a=git\ p; b=ush\ -f; $a$b; a=; b=
a=g; a+=it; $a push -f
a='git p'; a+='ush -f'; $a
a=git; a+=' push'; a+=' -f'; $a
a=tig; $(rev <<< $a) push -f
a=xgit; ${a#x} push -f
a=gitx; ${a%x} push -f
a=GIT; ${a,,} push -f
a=GIT b=PUSH; ${a,,} ${b,,} -f
a='GIT PUSH -f'; ${a,,}
a=gXit b=puXsh; ${a/X/} ${b/X} -f
a='gXit puXsh -f'; ${a//X}
a='git puXsh -f'; ${a/X/}
a=xxgitxx; ${a:2:3} push -f
a='xxgit push -f'; ${a:2}
a=git_push_-f; ${a//_/ }
a='git push -f'; b=a; ${!b}
a='git p'; b='ush -f'; c=a d=b; ${!c}${!d}
b=a; a=git; ${!b} push -f
a='git push -f'; ${a@E}
a='\147it push -f'; ${a@E}
declare -n r=a; a='git push -f'; $r
a=(git push -f); "${a[@]}"
a=(git push -f); ${a[*]}
a=(git push -f); "${a[0]}" "${a[1]}" "${a[2]}"
a=(git push -f); $a push -f
a=(push git -f); "${a[1]}" "${a[0]}" "${a[2]}"
a=([0]=git [1]=push [2]=-f); "${a[@]}"
a=([2]=-f [0]=git [1]=push); "${a[@]}"
a[0]=git a[1]=push a[2]=-f; "${a[@]}"
a=(); a+=(git); a+=(push); a+=(-f); "${a[@]}"
a=(push -f); git "${a[@]}"
a=(-f); git push "${a[@]}"
declare -a a=(git push -f); "${a[@]}"
declare -A a=([x]=git [y]=push); "${a[x]}" "${a[y]}" -f
declare a='git push -f'; $a
typeset a='git push -f'; $a
readonly a='git push -f'; $a
export a='git push -f'; $a
export a='git push -f'; sh -c '$a'
a='git push -f' sh -c '$a'
a='git push -f' sh -c 'eval "$a"'
env a='git push -f' sh -c '$a'
f() { local a='git push -f'; $a; }; f
printf -v a '%s ' git push -f; $a
printf -v a 'git pu%s -f' sh; $a
read a <<< 'git push -f'; $a
read a b <<< 'git ush'; $a p$b -f
read -a a <<< 'git push -f'; "${a[@]}"
read -d '' a <<< 'git push -f'; $a
mapfile -t a <<< 'git push -f'; ${a[0]}
mapfile -t a < <(printf '%s\n' git push -f); "${a[@]}"
readarray -t a <<< $'git\npush\n-f'; "${a[@]}"
set -- git push -f; "$@"
set -- git push -f; $*
set -- git push -f; $1 $2 $3
set -- push -f; git "$@"
set git push -f; "$@"
set -- 'git p' 'ush -f'; $1$2
set -- x git push -f; shift; "$@"
for c in 'git push -f'; do $c; done
for a in git; do for b in push; do $a $b -f; done; done
for a in 'git p'; do for b in 'ush -f'; do $a$b; done; done
for a in push; do git $a -f; done
for ((i=0;i<1;i++)); do git push -f; done
select c in 'git push -f'; do $c; break; done <<< 1
case x in *) git push -f;; esac
case x in x) a='git push -f';; esac; $a
if git push -f; then :; fi
if true; then git push -f; fi
while git push -f; do break; done
until git push -f; do break; done
! git push -f
{ git push -f; }
( git push -f )
((1)) && git push -f
[[ -d . ]] && git push -f
true && git push -f
false || git push -f
true | git push -f
git push -f | cat
git push -f & wait
git push -f > /dev/null 2>&1
2>&1 git push -f
<README git push -f
git push <<< x -f
git push > f -f
f() { git push -f; }; f
function f { git push -f; }; f
function f() { git push -f; }; f
f() { "$@"; }; f git push -f
f() { $1 $2 $3; }; f git push -f
f() { git "$@"; }; f push -f
f() { git push "$@"; }; f -f
f() { $*; }; f git push -f
f() ( git push -f ); f
git() { command git "$@" -f; }; git push
g() { git push $1; }; g -f
f() { $x; }; x='git push -f'; f
export -f f 2>/dev/null; f() { git push -f; }; export -f f; bash -c f
env 'BASH_FUNC_f%%=() { git push -f; }' bash -c f
bash -O expand_aliases -c $'alias p="git push -f"\np'
alias g=git; eval 'shopt -s expand_aliases'; eval 'g push -f' || git push -f
hash -p /usr/bin/git g; g push -f
ln -s /usr/bin/git g; ./g push -f
ln -s "$(command -v git)" g; ./g push -f
cp /usr/bin/git g; ./g push -f
ln -s /usr/bin/git g; PATH=$PWD:$PATH; g push -f
ln -s /bin/sh s; ./s -c 'git push -f'
trap 'git push -f' EXIT
trap "git push -f" EXIT
trap git\ push\ -f 0
trap 'git push -f' DEBUG; true
trap 'git push -f' ERR; false
trap 'git push -f' USR1; kill -USR1 $$
x='git push -f'; trap "$x" EXIT
PROMPT_COMMAND='git push -f' bash --norc -i <<< exit
PS1='$(git push -f)' bash --norc -i <<< exit
PS4='$(git push -f)'; set -x; :
echo 'git push -f' > f; BASH_ENV=$PWD/f bash -c :
echo 'git push -f' > f; ENV=$PWD/f dash -i <<< exit
BASH_ENV=<(echo git push -f) bash -c :
echo 'git push -f' > f; bash --rcfile f -i <<< exit
echo 'git push -f' > ~/.bashrc; bash -i <<< exit
echo 'git push -f' > ~/.profile; bash -l <<< exit
history -s git push -f; set -o history; history -s 'git push -f'; fc -s
echo 'git push -f' > f; sh f
echo 'git push -f' > f; . ./f
echo 'git push -f' > f; source f
echo 'git push -f' > f; sh < f
echo 'git push -f' > f; cat f | sh
echo 'git push -f' > f; chmod +x f; ./f
echo 'git push -f' > f; env bash f
echo 'git push -f' > f; nice sh f
echo 'git push -f' > f; mv f g; sh g
echo 'git push -f' > f; cp f g; bash g
echo 'git push -f' > f; eval "$(cat f)"
echo 'git push -f' > f; $(cat f)
echo 'git push -f' > f; eval "$(< f)"
echo 'git push -f' > f; bash -c "$(cat f)"
echo 'git push -f' > f; read a < f; $a
echo 'git push -f' > f; mapfile a < f; $a
echo 'git push -f' > f; while read a; do $a; done < f
echo 'git push -f' > f; sh < f > /dev/null
echo 'git push -f' | tee f; sh f
echo 'git push -f' | dd of=f; sh f
printf 'git push -f' >> f; sh f
{ echo 'git push -f'; } > f; sh f
(echo git push; echo -f) | paste -sd' ' > f; sh f
echo 'git pu' > f; echo 'sh -f' >> f; paste -sd '' f | sh
cat > f <<< 'git push -f'; sh f
echo 'git push -f' > git-x; chmod +x git-x; PATH=$PWD:$PATH git x
echo 'git push -f' > x; chmod +x x; PATH=$PWD:$PATH; x
mkfifo p; sh p & echo 'git push -f' > p; wait
mkfifo p; echo 'git push -f' > p & sh < p; wait
exec > f; echo 'git push -f'; exec > /dev/null; sh f
awk 'BEGIN{print "git push -f" > "f"}'; sh f
perl -e 'open F, ">f"; print F "git push -f"'; sh f
python3 -c "open('f', 'w').write('git push -f')"; sh f
sed -n '1s/.*/git push -f/w f' README; sh f
echo 'git pushX -f' | sed s/X// > f; sh f
a=$(cat <<< 'git push -f'); $a
a=`echo git push -f`; $a
a=$(printf '%s push -f' git); $a
a=$(echo 'git push -f'); eval $a
""git push -f
$empty git push -f
$(true) git push -f
$empty''git push -f
[ 1 = 1 ] && { cd . ; git push -f; }
echo $(git push -f)
echo "$(git push -f)"
echo `git push -f`
: $(git push -f)
: "${x:=$(git push -f)}"
x=$(git push -f)
export x=$(git push -f)
[[ $(git push -f) ]]
(( $(git push -f >/dev/null; echo 1) ))
echo $(( $(git push -f >/dev/null; echo 1) ))
cat <(git push -f)
tee >(git push -f) < /dev/null; sleep 1
a=(x $(git push -f))
a[$(git push -f)0]=1
test -v 'a[$(git push -f)0]'
: ${a[$(git push -f)0]}
printf -v 'a[$(git push -f)0]' x
let 'a[$(git push -f)0]=1'
x='a[$(git push -f)0]'; echo $((x))
ssh -o ProxyCommand='git push -f' x true
GIT_SSH=$PWD/s; printf '#!/bin/sh\ngit push -f\n' > s; chmod +x s; export GIT_SSH; git ls-remote ssh://x/y
git -C ../bare.git update-ref refs/heads/main $(git -C ../bare.git rev-parse side)
git --git-dir=../bare.git update-ref -d refs/heads/side
git --git-dir=../bare.git fetch ../work +main:main
git -C ../bare.git branch -D side
cd ../bare.git && git branch -f side main
cd ../bare.git && git fetch ../work +main:main
rm ../bare.git/refs/heads/side
cp .git/refs/heads/main ../bare.git/refs/heads/main
cp ../bare.git/refs/heads/main ../bare.git/refs/heads/side
git rev-parse HEAD > ../bare.git/refs/heads/main
./release.sh
make -f tools.mk release
sh -c "$(cat release.sh)"
sh < release.sh
cat release.sh | sh
. ./release.sh
$(tail -1 release.sh)
eval "$(tail -1 release.sh)"
git publish
read a < <(tail -1 release.sh); $a
python3 release.py
python3 -c "import release"
echo -f > flags; git push $(cat flags)
B=+main; git push origin $B
B=+main; git push origin "$B"
git push origin "$(echo +main)"
git push "$PUSH_FLAGS" -f 2>/dev/null; git push ${PUSH_FLAGS--f}
F=-f; git push $F
F=f; git push -$F
F=--force; git push "$F"
git push origin ma'in' +side
git push origin "+main"
git push origin \+main
git push origin main:main --no-thin -f
git push --force-with-lease=main: origin main; git push -f
git  push   origin   +HEAD^{}:main
git push origin +@:main
git push origin +HEAD~0:refs/heads/main
git push -c x; git -c push.followTags=true push -f
git --git-dir=$PWD/.git push ../bare.git +main
git --bare --git-dir=.git push -f
X=-f git push -f
a="-f"; git push ${a}
a="git push"; $a "-f"
sh -c "git push $(echo -f)"
sh -c 'git push '"-f"
sh -c 'git push '-f
sh -c git\ push\ -f
sh -c "git push"" -f"
sh -ce 'git push -f'
sh -xc 'git push -f'
bash -c 'x="$*"; eval $x' _ git push -f
bash -c 'eval "${BASH_ARGV0:-$0}"' 'git push -f'
bash -c 'a=("$@"); "${a[@]}"' _ git push -f
bash -c '"${@:2}"' _ x git push -f
bash -c '${!1} push -f' _ g; g=git bash -c '${!1} push -f' _ g
bash -c 'set -- "$@" -f; "$@"' _ git push
bash -c 'IFS=,; $1' _ git,push,-f
bash -c '$BASH_EXECUTION_STRING' 2>/dev/null; git push -f
bash -c "$(printf '%s\n' 'git push -f')"
bash -c "`echo git push -f`"
bash -c $'git push \x2df'
bash -lc "git push -f"
bash --rcfile <(echo git push -f) -i <<< exit
bash --init-file <(echo git push -f) -i <<< exit
bash -i <<< 'git push -f'
cat <(echo git push -f) | sh
cat <(echo git push -f) > f; sh f
echo "git push -f" > f && chmod 755 f && $PWD/f
echo "git push -f" > f && bash ./f
echo "git push -f" > d.sh; for s in *.sh; do sh $s; done
echo "git push -f" > d.sh; find . -name d.sh -exec sh {} \;
echo "git push -f" > d.sh; ls d.sh | xargs sh
echo "git push -f" > d.sh; sh ./d*
echo "git push -f" > d.sh; sh ?.sh
echo "git push -f" > d.sh; x=d; sh $x.sh
echo "git push -f" > d.sh; x=d.sh; . ./$x
echo "git push -f" > d.sh; sh "$(ls d.sh)"
echo "git push -f" | tee d.sh > /dev/null; cat d.sh | bash -
echo "git push -f" | install /dev/stdin d; ./d
install -m755 <(echo git push -f) d; ./d
cp <(echo git push -f) d; sh d
cp /dev/stdin d <<< 'git push -f'; sh d
ln -s <(echo) d; echo 'git push -f' > e; ln -s e g; sh g
tee d <<< 'git push -f'; sh d
sed 's/a/b/' <<< 'git push -f' > d; sh d
sed 's/a/b/' <<< 'git push -f' | sh
awk 1 <<< 'git push -f' | sh
head -1 <<< 'git push -f' | sh
sort <<< 'git push -f' | sh
tac <<< 'git push -f' | sh
nl -s ' ' <<< 'git push -f' | cut -c7- | sh
dd <<< 'git push -f' 2>/dev/null | sh
printf '%s' 'git push -f' | xargs -0 -I{} sh -c {}
printf '%s\n' push -f | xargs git
seq 1 | sed 's/1/git push -f/' | sh
python3 -c 'import os,sys; os.system(" ".join(sys.argv[1:]))' git push -f
python3 -c 'import subprocess,sys; subprocess.run(sys.argv[1:])' git push -f
perl -e 'system @ARGV' git push -f
perl -e 'exec @ARGV' -- git push -f
awk 'BEGIN{system(ARGV[1])}' 'git push -f'
awk -v c='git push -f' 'BEGIN{system(c)}'
CMD='git push -f' python3 -c 'import os; os.system(os.environ["CMD"])'
CMD='git push -f' perl -e 'system $ENV{CMD}'
python3 -c 'import os; os.system(input())' <<< 'git push -f'
echo git push -f | python3 -c 'import os; os.system(input())'
python3 -c "import os; c=['git','push']; c.append('-f'); os.execvp('git', c)"
python3 -c "import os; os.system('git %s -f' % 'push')"
python3 -c "import os; os.system('git {} -f'.format('push'))"
perl -e '$_="git push"; system "$_ -f"'
perl -e 'system join " ", "git", "push", "-f"'
perl -e 'system("git","push","--force")'
find . -maxdepth 0 -exec env git push -f \;
find . -maxdepth 0 -ok git push -f \; <<< y
find . -maxdepth 0 -exec bash -c '"$@"' _ git push -f \;
find . -maxdepth 0 -printf 'git push -f\n' | sh
env -u X git push -f
env -i "PATH=$PATH" "HOME=$HOME" sh -c 'git push -f'
env - PATH="$PATH" git push -f
env --ignore-environment PATH=$PATH git push -f
timeout --signal=KILL 20 git push -f
nice --adjustment=5 git push -f
chrt -o 0 git push -f
setarch -R git push -f
unshare git push -f
chroot / sh -c "cd $PWD; git push -f"
linux64 git push -f
ionice git push -f
nsenter -t $$ -m git push -f 2>/dev/null || git push -f
g=git;p=push;f=-f;$g $p $f
: git; $_ push -f
true git push -f; x=$_; git push $x
echo git push > /dev/null; $_ 2>/dev/null; git push -f
test git; "$_" push -f
a=(git push -f); eval "${a[*]}"
a=(git push -f); b=("${a[@]}"); "${b[@]}"
a=('git' 'push' [2]='-f'); "${a[@]}"
a=(git push); a[2]=-f; "${a[@]}"
a=(git push); "${a[@]}" -f
a=(git); a+=(push -f); "${a[@]}"
declare -A m; m[x]=git; m[y]=push; "${m[x]}" "${m[y]}" -f
declare -a 'a=(git push -f)'; "${a[@]}"
eval 'a=(git push -f)'; "${a[@]}"
local_() { local -a a=(git push -f); "${a[@]}"; }; local_
f() { eval "$@"; }; f git push -f
f() { bash -c "$*"; }; f git push -f
f() { local c="$1"; shift; "$c" "$@"; }; f git push -f
f() { command "$@"; }; f git push -f
f() { g "$@"; }; g() { "$@"; }; f git push -f
p() { git push "$@"; }; p -f
push() { git "${FUNCNAME[0]}" -f; }; push
git_push_f() { IFS=_; set -- $FUNCNAME; "$1" "$2" "-$3"; }; git_push_f
x=git\ push\ -f; while :; do $x; break; done
x=tig; y=; for ((i=2;i>=0;i--)); do y+=${x:i:1}; done; $y push -f
printf -v x '\147it'; $x push -f
printf -v x %s gi t; $x push -f
read -r x y <<< 'git push'; $x $y -f
IFS= read -r x <<< 'git push -f'; eval "$x"
{ read x; $x; } <<< 'git push -f'
exec <<< 'git push -f'; read x; $x
exec <<< 'git push -f'; sh
. <(cat <<< 'git push -f')
command . /dev/stdin <<< 'git push -f'
builtin source <(echo git push -f)
mapfile -C 'git push -f;:' -c 1 x <<< a
complete -C x y; compgen -W '$(git push -f)'
bind -x '"a":git push -f' 2>/dev/null; git push -f
enable -n echo; git push -f
logger() { :; }; git push -f
kill -l | read; git push -f
wait; (sleep 0.1; git push -f) & wait
{ sleep 0.1; git push -f; } & wait $!
nohup sh -c 'git push -f' > /dev/null 2>&1 & wait
setsid sh -c 'git push -f' & wait
trap - EXIT; trap -- 'git push -f' EXIT
trap 'eval "$c"' EXIT; c='git push -f'
PROMPT_COMMAND=(x 'git push -f'); bash -c "git push -f"
cd "$(git rev-parse --show-toplevel)" && git push -f
GIT_TRACE=1 git push -f
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.sshCommand GIT_CONFIG_VALUE_0='git push -f;' git ls-remote ssh://x/y
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.mirror GIT_CONFIG_VALUE_0=true git push origin
git config --file .git/config alias.p 'push -f'; git p
git config set alias.p 'push -f' 2>/dev/null; git config alias.p 'push -f'; git p
git config alias.p '!sh -c "git push -f"'; git p
git config alias.x '!$X'; X='git push -f' git x
git config alias.x '!f() { $1 $2 $3; }; f'; git x git push -f
git -c alias.x='!sh -c "$0 push -f" git' x
git -c alias.x='!git' x push -f
git -c alias.x='-c a.b=c push' x -f
git -c alias.x.y=z -c alias.p='push --force' p
git config --edit 2>/dev/null; EDITOR='sh -c "git push -f"' git config --edit
git config remote.pushDefault origin; git config branch.main.pushRemote origin; git push -f
git config url.x.insteadOf y; git push -f
git remote add -f --mirror=push x ../bare.git; git push x
git remote set-url origin ../bare.git; git config remote.origin.push '+refs/heads/*:refs/heads/*'; git push
git config --replace-all remote.origin.push '+main'; git push
git config remote.origin.push :side; git push
git clone -q -c core.fsmonitor='git push -f' . c; cd c; git status; cd ..; git push -f
git worktree add -q ../w; cd ../w; git push -f origin main
git stash; git push -f
git commit -q --allow-empty -m "$(git push -f)"
git log -1 --format="$(git push -f)"
git tag x "$(git push -f >&2; git rev-parse HEAD)"
git notes add -m x; git push origin +main +refs/notes/*
git push origin $(git branch --format='+%(refname:short)')
git for-each-ref --format='git push origin +%(refname:short)' refs/heads | sh
git for-each-ref --shell --format='r=%(refname:short); git push -f origin $r' refs/heads/main | sh
git branch --format='%(refname:short)' | xargs -I{} git push origin +{}
git branch --format='+%(refname:short)' | xargs git push origin
git branch --format='push origin +%(refname:short)' | grep main | xargs git
git log -1 --format=%s | sed 's/.*/git push -f/' | sh
git show HEAD:README | sed '1s/.*/git push -f/;2d' | sh
git var GIT_EDITOR; git push -f
make -s -f <(printf 'x:\n\t@git push -f\n')
make SHELL='git push -f;:' -f tools.mk 2>/dev/null; git push -f
tar --create --file=/dev/null --checkpoint=1 '--checkpoint-action=exec=git push -f' README
split -l 1 --filter 'git push -f' README
sort -S 1 --compress-program='sh -c "git push -f"' /dev/null; git push -f
git push ?f 2>/dev/null || { touch ./-f; git push *f; }
"""

# A line of _LINES is one text, except where a line goes on.
_LONGER = ["git push \\\n  -f", "gi\\\nt pu\\\nsh -f"]
_ALIASED = [
    "shopt -s expand_aliases\nalias p='git push -f'\np",
    "shopt -s expand_aliases; alias p='git push'\np -f",
    "shopt -s expand_aliases; alias g=git\ng push -f",
]
_TEXTS = [
    "bash <<EOF\ngit push -f\nEOF",
    "bash <<'EOF'\ngit push -f\nEOF",
    "sh -s <<-EOF\n\tgit push -f\n\tEOF",
    "cat <<EOF | sh\ngit push -f\nEOF",
    "cat <<EOF | cat | sh\ngit push -f\nEOF",
    "cat > f <<EOF\ngit push -f\nEOF\nsh f",
    "cat <<EOF > f\ngit push -f\nEOF\nchmod +x f; ./f",
    ". /dev/stdin <<EOF\ngit push -f\nEOF",
    "while read a; do $a; done <<EOF\ngit push -f\nEOF",
    'eval "$(cat <<EOF\ngit push -f\nEOF\n)"',
    "cat <<EOF\n$(git push -f)\nEOF",
    "x=push\nbash <<EOF\ngit $x -f\nEOF",
    "python3 <<EOF\nimport os\nos.system('git push -f')\nEOF",
    "python3 - <<EOF\nfrom subprocess import run\nrun(\n  ['git', 'push',\n   '--force'])\nEOF",
    "perl - <<EOF\nsystem('git push -f')\nEOF",
    "make -f - <<EOF\nx:\n\tgit push -f\nEOF",
    "cat > x.py <<EOF\nimport os\nos.system('git push -f')\nEOF\npython3 x.py",
    "cat > x.pl <<EOF\nsystem('git push -f')\nEOF\nperl x.pl",
    "# nothing\ngit push -f",
    "cat <<A; git push -f\nhere\nA",
    "cat <<A <<'B'\nx\nA\ny\nB\ngit push -f",
    "((x<<2))\ngit push -f\n2",
    "case x in\n(x) git push -f ;;\nesac",
    "xargs env <<EOF\ngit push -f\nEOF",
]

_SCRIPT = "what a script, a `Makefile`, a module or an alias does that was there before"
_READ = "a command that is read from a file that was there before"
_TOGETHER = "code in another language that puts its words together"
_GIVEN = "or that are given other values than the text shows"
_REMOTE = "a remote that is a folder on this machine and is changed in place"
# What a reader of text cannot see, each with the line of docs/guides/guards.md that says so.
UNSEEN = {
    **dict.fromkeys(("./release.sh", ". ./release.sh", "make -f tools.mk release", "git publish"), _SCRIPT),
    **dict.fromkeys(("python3 release.py", 'python3 -c "import release"', "sh < release.sh"), _SCRIPT),
    **dict.fromkeys(('sh -c "$(cat release.sh)"', "cat release.sh | sh", "$(tail -1 release.sh)"), _READ),
    **dict.fromkeys(('eval "$(tail -1 release.sh)"', "read a < <(tail -1 release.sh); $a"), _READ),
    **dict.fromkeys(
        (
            "git -C ../bare.git update-ref refs/heads/main $(git -C ../bare.git rev-parse side)",
            "git --git-dir=../bare.git update-ref -d refs/heads/side",
            "git --git-dir=../bare.git fetch ../work +main:main",
            "git -C ../bare.git branch -D side",
            "cd ../bare.git && git branch -f side main",
            "cd ../bare.git && git fetch ../work +main:main",
            "rm ../bare.git/refs/heads/side",
            "cp .git/refs/heads/main ../bare.git/refs/heads/main",
            "cp ../bare.git/refs/heads/main ../bare.git/refs/heads/side",
            "git rev-parse HEAD > ../bare.git/refs/heads/main",
        ),
        _REMOTE,
    ),
    """perl -e 'print pack("H*", "6769742070757368202d66")' | sh""": _TOGETHER,
    """python3 -c "import os; os.system('git %s -f' % 'push')\"""": _TOGETHER,
    """python3 -c "import os; os.system('git {} -f'.format('push'))\"""": _TOGETHER,
    """git_push_f() { IFS=_; set -- $FUNCNAME; "$1" "$2" "-$3"; }; git_push_f""": _GIVEN,
}

FORCED = [*filter(None, _LINES.splitlines()), *_LONGER, *_ALIASED, *_TEXTS]
