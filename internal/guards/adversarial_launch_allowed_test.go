package guards

// allowedLaunches are ordinary calls of the same programs.
const allowedLaunches = `
env
env ls
env -i ls
env A=1 ls -l
env -u X ls
nice ls
nice -n 5 ls
nohup ls
timeout 5 ls
timeout -s KILL 5 ls -l
timeout 5s env A=1 ls
stdbuf -oL ls
setsid ls
ionice -c 3 ls
time ls
time -f %e ls
flock f ls
flock -n f ls
sudo ls
sudo -u x ls
xargs
xargs ls
xargs -n1 ls
xargs -0 grep x
xargs -I{} echo {}
xargs -I{} find ./{}
xargs sh -c echo~"$@" _
find . -name *.go
find . -type f -exec cat {} +
find . -exec grep x {} ;
find . -name -exec -print
find -L . -maxdepth 1 -newermt yesterday -delete
find . -printf %p\n
bash -c ls
bash -c ls~|~grep~x
bash -ec ls
sh -c ls
sh -c ls~|~cat
dash -c echo~x
awk {print~$1}
awk -F: {print~$1}
awk -F , {print~$1/2}
awk -v x=1 {print~x} f
awk {print~$1~"|"~$2}
awk /a|b/{print}
awk $1~||~$2
awk {s+=$1}~END{print~s} f
sed s/a/b/
sed -n 1,5p f
sed -i s/a/b/g f
sed -i.bak -e s/a/b/ -e /x/d f
sed -E s/(a|b)/x/g
sed s|/a|/b|
sed $d
sed /start/,/end/d
sed -n /x/{p;q}
sed y/abc/def/
sed 1~2d
sed s/[^/]*$//
sed s/e/e/
sed a\~text
sed /e/d
sed -ne s/x/y/p f
sed --expression=s/a/b/ f
sed :a;N;$!ba;s/x/y/g
tar xf a.tar
tar xzf a.tgz
tar -xzf a.tgz -C /tmp
tar czf a.tgz dir
tar cf /tmp/a.tar .
tar tvf a.tar
tar --extract --file=a.tar
tar --exclude=x -cf a.tar .
tar cf ./host:a .
git status
git stash show -p
git remote
git remote get-url origin
git bisect good
git rev-parse --verify HEAD
git log --oneline -n 3
git log --format=%H -n 3
git diff HEAD~1
git show HEAD
git add .
git add -A
git commit -m msg
git commit -am msg
git commit --amend --no-edit
git checkout -b x
git branch -a
git -C dir status
git --no-pager log
git -c user.name=x commit -m y
git clone https://example.com/x
git fetch https://example.com/x
git config user.name x
git config --global user.email x
git config --get user.name
git config --list
git stash
git rebase main
git tag v1
git tag -a v1 -m x
git rev-parse HEAD
git diff -a --text
git --version
git version
git grep -n x
sort
sort -k 2 -t , f
sort -rn f
sort --reverse f
split -l 5 f
rg x
rg -n --pretty x dir
fd x
fd -e go x
fd --extension go x
rsync -a a/ b/
rsync -avz ./a /tmp/b
diff -u a b
diff a b
sdiff a b
patch -u -p1 -i f
install -m 755 a b
wget https://example.com
zip -r a.zip dir
openssl version
file x
ip addr
ip -br link
python3 --version
node --version
make --version
jq .x f
curl -s https://example.com
tee f
dd if=a of=b
kubectl --help
`
