"""Spellings of a write outside the workspace, and harmless commands. Each text is run by bash in `work`.

Beside `work` stand `out/`, with the files `f` and `g`, and `f`. `$P` in a text is the folder above, as a path that is known.
"""

_LINES = r"""
echo x > ../new
echo x >../new
echo x >> ../f
echo x 1> ../new
ls nothing 2> ../new
ls nothing &> ../new
ls nothing &>> ../new
echo x >| ../new
echo x >& ../new
echo x <> ../f 1>&0
> ../new
: > ../f
1>../new
>../new echo x
echo > ../new x
exec > ../new
exec 3> ../new
exec {fd}> ../new
{ echo x; } > ../new
( echo x ) > ../new
if true; then echo x; fi > ../new
for i in 1; do echo x; done > ../new
while false; do :; done > ../new
f() { echo x; } > ../new; f
f() { echo x > ../new; }; f
echo x | tee ../new
echo x | tee -a ../new
echo x | tee a ../new b
echo x | cat > ../new
echo x > >(cat > ../new); sleep 0.2
echo x | tee >(cat > ../new); sleep 0.2
cat < a > ../new
printf x > $P/new
printf x > "$P/new"
printf x > ~+/../new
printf x > $PWD/../new
printf x > ${PWD}/../new
printf x > "${PWD%/*}/new"
printf x > ~/new
printf x > $HOME/new
printf x > "${HOME}"/new
printf x > ${HOME:-/}/new
printf x > '../new'
printf x > ".."/new
printf x > .''./new
printf x > \.\./new
printf x > $'../new'
printf x > $'\x2e./new'
printf x > src/../../new
printf x > ./.././new
printf x > ..//new
printf x > ln-out/new
printf x > ln-f
touch ../new
touch a ../new
touch -- ../new
touch ./../new
touch -c ../f -d 2001-01-01
touch -cd 2001-01-01 ../f
touch -t 200101010000 ../f
touch -r a ../f
touch --reference=a ../f
touch {a,../new}
touch {src,..}/new
touch $(echo ../new)
touch "$(echo ../new)"
touch `echo ../new`
touch $(printf %s/new ..)
touch ..$(echo /)new
D=..; touch $D/new
D=..; touch "$D"/new
D=../; touch ${D}new
D=..; E=new; touch $D/$E
D=.; D+=.; touch $D/new
D=src; D=..; touch $D/new
D=..; touch $D/new; D=src
D=xx/..; touch ${D#xx/}/new
D=..x; touch ${D%x}/new
D=..; E=D; touch ${!E}/new
a=(../new); touch "${a[@]}"
a=(a ../new); touch "${a[1]}"
set -- ../new; touch "$1"
set -- ../new; touch "$@"
touch ${x:-../new}
touch ${x:-..}/new
for f in ../new; do touch $f; done
for f in a ../new; do touch "$f"; done
for f in ../new a; do touch "$f"; done
for f in a ../new b; do touch "$f"; done
for d in src ..; do for f in a new; do touch "$d/$f"; done; done
for d in ..; do touch $d/new; done
f() { touch $1; }; f a; f ../new
f() { touch "$1"; }; f a; f ../new; f b
for f in a $P/new b; do cp a "$f"; done
read f <<< ../new; touch $f
printf -v f %s ../new; touch $f
declare f=../new; touch $f
export f=../new; touch "$f"
f=../new; sh -c "touch $f"
export f=../new; sh -c 'touch $f'
f=../new sh -c 'touch $f'
sh -c 'touch $1' _ ../new
sh -c 'touch "$@"' _ ../new
sh -c 'touch $0' ../new
bash -c 'touch "${@}"' _ ../new
f() { touch $1; }; f ../new
f() { touch "$@"; }; f ../new
cp a ../new
cp a ..
cp -r src ..
cp -t .. a
cp -rt .. src
cp -vt .. a
cp -t.. a
cp -vt.. a
cp --target-directory=.. a
cp --target-directory .. a
cp --target-dir=.. a
cp -T a ../new
cp -f a ../f
cp a b ../out
mv a ..
mv a ../new
mv -t .. a
mv -vt .. a
mv -ft.. a
mv ../f .
mv ../out/f src/
install a ../new
install -m 755 a ../new
install -m755 a ../new
install -D a ../n/new
install -Dm755 a ../n/new
install -t .. a
install -Dt ../n a
install -Dvt../n a
install -d ../new
install -d a1 ../new
ln a ../new
ln -s a ../new
ln -st .. a
ln -sft .. a
ln -sf a ../f
link a ../new
mkdir ../new
mkdir -p ../n/new
mkdir -pm 755 ../new
mkdir -pvm755 ../new
rm ../f
rm -f ../f
rm -rf ../out
rm -rf -- ../out
rmdir ../empty
unlink ../f
shred -u ../f
shred -n1 -zu ../f
truncate -s 0 ../f
truncate -s0 ../f
truncate --size=9 ../new
fallocate -l 9 ../new
dd of=../new < a
dd if=a of=../new
dd if=a status=none of=$P/new
sort -o ../new a
sort -uo ../new a
sort -uo../new a
sort --output=../new a
sort --out=../new a
uniq a ../new
shuf -o ../new a
shuf -o../new a
split -b 1 a ../new
split -l1 a ../out/x
csplit -sf ../new a 1
csplit --prefix=../new a 1
sed -i s/./x/ ../f
sed -ni p ../f
sed -i.bak s/./x/ ../f
sed --in-place s/./x/ ../f
sed -Ei -e s/./x/ ../f
sed -n 'w ../new' a
sed -n '1w ../new' a
sed 's/./x/w ../new' a
sed -ne 'w../new' a
perl -pi -e s/./x/ ../f
perl -i -pe s/./x/ ../f
tar xf t.tar -C ..
tar -xf t.tar -C ..
tar -xC .. -f t.tar
tar -xC.. -f t.tar
tar xfC t.tar ..
tar -xvf t.tar --directory=..
tar -xf t.tar --directory ..
tar cf ../new a
tar -cf ../new a
tar -cf../new a
tar czf ../new a
tar -czvf ../new a
tar -c -f ../new a
tar --create --file=../new a
gzip -f ../f
gzip -c a > ../new
gunzip -f ../z.gz
bzip2 -f ../f
xz -f ../f
find ../out -name f -delete
find ../out -type f -exec rm {} +
find a -exec cp {} .. \;
find a -exec touch ../new \;
find a -execdir touch ../new \;
find a -fprint ../new
find a -fprintf ../new %p
find a -fls ../new
echo ../new | xargs touch
echo ../f | xargs rm
echo .. | xargs -I{} touch {}/new
echo new | xargs -I% touch ../%
printf '../new\0' | xargs -0 touch
xargs touch <<< ../new
echo a | xargs -I{} cp {} ../new
env touch ../new
env -i touch ../new
env X=1 touch ../new
env -C .. touch new
env --chdir=.. touch new
env -S 'touch ../new'
nice touch ../new
nice -n 5 touch ../new
nohup touch ../new
timeout 5 touch ../new
timeout -k 1 5 touch ../new
timeout -s KILL 5s touch ../new
stdbuf -oL touch ../new
setsid -w touch ../new
ionice -c 3 touch ../new
ionice -c3 touch ../new
taskset 1 touch ../new
chrt -o 0 touch ../new
prlimit --nofile=99 touch ../new
flock a touch ../new
flock a -c 'touch ../new'
flock ../new true
script -qc 'touch ../new' /dev/null
script -qc true ../new
time touch ../new
command touch ../new
exec touch ../new
builtin eval touch ../new
coproc touch ../new; wait
/usr/bin/touch ../new
/usr/bin/t[o]uch ../new
/bin/../bin/touch ../new
'touch' ../new
to''uch ../new
$'touch' ../new
t=touch; $t ../new
t='touch ../new'; $t
t=tou; $t'ch' ../new
$(echo touch) ../new
$(which touch) ../new
a=(touch ../new); "${a[@]}"
{touch,../new}
eval touch ../new
eval 'touch ../new'
eval "touch" "../new"
eval "$(echo touch ../new)"
eval $(echo touch ../new)
bash -c 'touch ../new'
sh -c 'cd ..; touch new'
bash -lc 'touch ../new'
bash -c -- 'touch ../new'
bash -O extglob -c 'touch ../new'
bash <<< 'touch ../new'
echo 'touch ../new' | sh
printf 'touch ../new' | bash
cat <<< 'touch ../new' | sh
source <(echo touch ../new)
. /dev/stdin <<< 'touch ../new'
bash <(echo touch ../new)
echo 'touch ../new' > s; sh s
echo 'touch ../new' > s; chmod +x s; ./s
echo 'touch ../new' > s; . ./s
trap 'touch ../new' EXIT
cd .. && touch new
cd ..; touch new
cd .. || exit; touch new
cd ../out; touch new
cd $P; touch new
cd "$P" && echo x > new
cd; touch new
cd ~; touch new
cd $HOME; touch new
cd -P ..; touch new
cd -- ..; touch new
cd src/../..; touch new
cd src; cd ../..; touch new
cd src && cd - && cd .. && touch new
cd ..; cd work; cd -; touch new
cd .. > /dev/null; touch new
(cd ..; touch new)
{ cd ..; touch new; }
if cd ..; then touch new; fi
cd .. && { touch new; }
CDPATH=.. cd out; touch new
CDPATH=..; cd out > /dev/null; touch new
pushd ..; touch new
pushd .. > /dev/null && touch new
pushd ..; pushd work; popd; touch new
builtin cd ..; touch new
command cd ..; touch new
D=..; cd $D; touch new
f() { cd ..; }; f; touch new
x=$(cd ..; touch new)
echo $(touch ../new)
echo "`touch ../new`"
cat <(touch ../new)
: ${x:=$(touch ../new)}
[[ $(touch ../new) ]]
true && touch ../new
false || touch ../new
true | touch ../new
touch ../new & wait
! touch ../new
case x in x) touch ../new;; esac
[ -d .. ] && touch ../new
let x=1; touch ../new
ln -s .. l; touch l/new
ln -s ../f l; echo x > l
ln -s $P l; cp a l/new
ln -sn .. l && cd l && touch new
mkfifo ../new
mknod ../new p
mktemp -p ..
mktemp ../newXXXX
mktemp -d --tmpdir=..
git init -q ../new
git clone -q . ../new
git worktree add -q ../new
git archive -o ../new HEAD
git archive --output=../new HEAD
git bundle create ../new HEAD
git format-patch -q -1 -o ../new
git format-patch -q -1 --output-directory=../new
git diff --output=../new
git log --output=../new
git config -f ../new a.b c
git config --file ../new a.b c
git -C .. init -q new
git checkout-index --prefix=../new/ a
git init -q --separate-git-dir=../new x
diff -u a src/a > ../new
patch -d .. < up.patch
patch ../f d.patch
make -C .. -f work/m new
awk 'BEGIN{print "x" > "../new"}'
awk '{print > "../new"}' a
python3 -c "open('../new', 'w')"
python3 -c "import os; os.mkdir('../new')"
perl -e 'open F, ">../new"'
node -e 'require("fs").writeFileSync("../new", "")'
make -f m up
sh up.sh
./up.sh
. ./up.sh
cat up.sh | sh
sh -c "$(cat up.sh)"
touch "$(cat name)"
touch $(< name)
read f < name; touch $f
cat name | xargs touch
while read f; do touch $f; done < name
git config --global a.b c
git -c core.fsmonitor='touch ../new;false' status
xargs -a name touch
"""

_ITSELF = "any program that writes by itself"
_WAS_THERE = "a script, a `Makefile` or a list of files that was there before"
_PROGRAM = "a program whose name is only known when it runs"
# What a reader of text cannot see, each with the line of docs/guides/guards.md that says so.
UNSEEN = {
    **dict.fromkeys(
        (
            """awk 'BEGIN{print "x" > "../new"}'""",
            """awk '{print > "../new"}' a""",
            """python3 -c "open('../new', 'w')\"""",
            """python3 -c "import os; os.mkdir('../new')\"""",
            """perl -e 'open F, ">../new"'""",
            """node -e 'require("fs").writeFileSync("../new", "")'""",
            "make -C .. -f work/m new",
            "git -c core.fsmonitor='touch ../new;false' status",
            "python3 - <<EOF\nopen('../new', 'w')\nEOF",
        ),
        _ITSELF,
    ),
    **dict.fromkeys(("make -f m up", "sh up.sh", "./up.sh", ". ./up.sh", "cat up.sh | sh"), _WAS_THERE),
    **dict.fromkeys(('sh -c "$(cat up.sh)"', "cat name | xargs touch", "xargs -a name touch"), _WAS_THERE),
    **dict.fromkeys(('touch "$(cat name)"', "touch $(< name)", "read f < name; touch $f"), _WAS_THERE),
    "while read f; do touch $f; done < name": _WAS_THERE,
    "$(which touch) ../new": _PROGRAM,
}

OUTSIDE = [
    *filter(None, _LINES.splitlines()),
    "cat > ../new <<EOF\nx\nEOF",
    "cat <<EOF > ../new\nx\nEOF",
    "tee ../new <<EOF\nx\nEOF",
    "bash <<EOF\ntouch ../new\nEOF",
    "bash <<'EOF'\ncd ..\ntouch new\nEOF",
    "cat <<EOF | sh\ntouch ../new\nEOF",
    "cat <<EOF\n$(touch ../new)\nEOF",
    "cat > s <<EOF\ntouch ../new\nEOF\nsh s",
    "touch \\\n  ../new",
    "# a\ntouch ../new",
    "shopt -s expand_aliases\nalias t='touch ../new'\nt",
    "shopt -s expand_aliases\nalias t=touch\nt ../new",
    "python3 - <<EOF\nopen('../new', 'w')\nEOF",
    "git apply --unsafe-paths <<'EOF'\n--- /dev/null\n+++ b/../new\n@@ -0,0 +1 @@\n+x\nEOF",
]

_INSIDE = r"""
echo x > new
echo x > src/new
echo x > ./new 2>&1
echo x > $PWD/new
echo x > "$PWD"/src/new
ls > /dev/null 2>&1
ls .. > list
ls >&2
cat ../f > copy
cat ../f | tee copy > /dev/null
cp ../f .
cp -r ../out src/
cp -t src ../f
cp -rt src ../out
cp -vt. ../f
cp --target-directory=src ../f
install -m 755 ../f x
install -Dt n ../f
install -d n/m
ln -s ../f l
ln -st src ../f
mkdir -p src/n
mkdir -pm 755 n
touch a src/n
touch -r ../f a
touch -cr ../f a
rm -rf src
mv a src/
mv -t src a
truncate -s 0 a
truncate -r ../f a
dd if=../f of=x status=none
sort ../f > s
sort -uo s ../f
sort -k2 -t: ../f -o s
uniq ../f
uniq ../f s
split -b 1 ../f p
sed -n p ../f
sed -i s/a/b/ a
sed 's#../f#x#' a > b
sed -n 'w new' ../f
perl -pe s/a/b/ ../f > x
tar cf t2.tar -C .. f
tar -cf t2.tar ../f
tar xf t.tar
tar xf t.tar -C src
tar tf t.tar
tar -xOf t.tar > x
tar czf - ../out > t.tgz
gzip -k a
gzip -c ../f > x.gz
zcat ../z.gz > x
find .. -name f
find .. -type f -exec grep -l x {} +
find . -name '*.tmp' -delete
grep -r x .. > found
grep -rn 'touch ../new' . | head
diff -u ../f a > d
diff ../f a
cd src && touch n
cd src && touch ../n
cd src; cd ..; touch n
(cd ..; ls) > l
cd .. && ls; cd work && touch n
cd .. && ls && cd - && touch n
pushd .. > /dev/null; ls; popd > /dev/null; touch n
x=$(cd .. && pwd); echo "$x" > n
echo 'x > ../new'
echo "> ../new"
echo "touch ../new" > todo
git commit -qm 'cp a ../b; echo > ../new'
git -C .. status
git -C ../work add a
git clone -q ../work src/c
git init -q n
git diff ../f a
git log --oneline -- ../f
git config user.name x
git archive HEAD -o x.tar
git worktree list
python3 -c 'print(open("../f").read())'
python3 -m pip --version > v
awk '{print $1}' ../f > x
wc -l ../f
head -c 1 ../f
test -f ../f && echo yes
[ -e ../f ]
ls -la ..
stat ../f
env X=1 touch a
nice -n 5 touch a
timeout 5 touch a
xargs -n1 echo < ../f
echo src | xargs -I{} touch {}/n
for f in a b; do touch "$f"; done
for f in ../f ../out/f; do cat "$f"; done
for f in ../f ../out/f; do cp "$f" src/; done
f() { cp "$1" src/; }; f ../f; f ../out/f
while read l; do echo "$l"; done < ../f > out.txt
bash -c 'touch n'
sh -c 'touch "$1"' _ n
eval touch n
make -f m here
curl -fsSLo x https://example.com/x
wget -qO x https://example.com/x
wget -qO- https://example.com/x
curl -sS -o /dev/null -w '%{http_code}' https://example.com
scp a host:/etc/x
rsync -a src/ host:/srv/x
"""
INSIDE = [
    *filter(None, _INSIDE.splitlines()),
    "cat > n.md <<'EOF'\nRun `touch ../new`, then\n\n    echo x > ../new\nEOF",
    "git commit -qm \"$(cat <<'EOF'\nsaves to ../new\nEOF\n)\"",
]
