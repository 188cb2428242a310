package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// launchList is what the calls in this file may use: launchers of every kind, and little to launch.
const launchList = "echo ls cat grep env xargs find nice nohup timeout stdbuf setsid ionice chrt taskset time flock sudo chronic bash sh dash zsh awk gawk sed tar git " +
	"sort split rg fd rsync diff sdiff patch install wget zip openssl tcpdump file gpg ip python3 python3.11 perl ruby node make npm cargo go docker kubectl scp su tini dumb-init gosu su-exec systemd-run systemd-socket-activate ssh-agent sshpass direnv mise watch parallel " +
	"script x86_64-linux-gnu-gcc gdb vim less man sqlite3 busybox chroot ld.so strace m4 dc ed crontab at screen tmux jq curl tee dd gcc-12 php8.2 ld-linux-x86-64.so.2"

// deniedLaunches are calls, one word per element of the line, that would start an unlisted program. A "~"
// stands for a space within a word.
const deniedLaunches = `
env id
env -i id
env - id
env A=1 B=2 id
env -u X id
env -S id
env --split-string=id
env -vS id
env PATH=/tmp ls
env LD_PRELOAD=x ls
env A-B=1 ls
env env id
env nice id
env ./ls
env /bin/ls
nice id
nice -n 5 id
nice -5 id
nice --adjustment=5 id
nice --adj 5 id
nice -n5 id
nohup id
timeout 5 id
timeout -s KILL 5 id
timeout -k 1 5 id
timeout --signal=KILL 5 id
timeout --foreground 5 id
timeout --unknown 5 ls
stdbuf -oL id
stdbuf -o L id
setsid id
setsid -w id
ionice -c 3 id
ionice -c3 -n 5 id
chrt -f 5 id
taskset 1 id
taskset -p 1
time id
time -f %e id
time -o f -a id
flock f id
flock f -c id
flock -n f id
sudo id
sudo -u x id
sudo -i
sudo -s
sudo -e f
sudo X=1 id
chronic id
xargs id
xargs -n1 id
xargs -I{} {}
xargs -I{} id {}
xargs -i id
xargs --replace=X id
xargs -a f id
xargs --arg-file=f id
xargs sh -c
xargs -I{} sh -c {}
xargs find
xargs tar
xargs sort
xargs git
xargs -0 env
xargs -d
find . -exec id ;
find . -exec id {} +
find . -execdir id ;
find . -ok id ;
find . -okdir id ;
find . -name x -o -exec id ;
find . -exec echo ; -exec id ;
find . -exec {} ;
find . -exec sh -c {} ;
find . -exec sh -c id ;
find . -unknown
bash
bash -c id
bash -c ls;id
bash -c eval~id
bash script.sh
bash -s
bash -lc ls
bash -ic ls
bash --rcfile f -c ls
bash -O extglob -c ls
bash -c
sh -c id
sh script.sh
sh -c echo~$'\'~;~id~#'
sh -c declare~x=1
sh -c [[~a~]]
dash -c id
dash -c echo~$'\'~;~id~#'
zsh -c ls
awk BEGIN{system("id")}
awk BEGIN{system~("id")}
awk {print|"id"}
awk BEGIN{"id"|getline}
awk BEGIN{"id"|getline~x}
awk BEGIN{print~"x"|&"id"}
awk -f prog
awk --file=prog
awk -fprog
awk -E prog
awk -i inplace {print}
awk -l ext {print}
awk @load"x";BEGIN{}
awk BEGIN{f="system";@f("id")}
awk -v x=1 BEGIN{system("id")}
awk -F: BEGIN{system("id")}
awk -e BEGIN{system("id")}
awk --source BEGIN{system("id")}
awk /"/{print|"id"}~/"/
awk -W exec f
gawk BEGIN{system("id")}
sed e
sed 1e~id
sed s/x/id/e
sed s/x/id/ge
sed s|x|id|e
sed -e s/a/b/ -e 1e
sed -ne 1e~id
sed -n e
sed --expression=e
sed --expression e
sed -f prog
sed --file=prog
sed $!e
sed /x/e~id
sed /x/{e~id
sed \,x,e~id
sed a~foo\ne
sed s/[^/]*$//e
sed s/[/]e/x/;s/]/e
sed y/abc/def/;e
sed :a;e~id
sed s/[/]/x/e~id
sed -s --unknown p
sed b~x;e
sed s/a/b/w~f\ne
tar xf a --to-command=id
tar xf a --to-command id
tar xf a --to-com id
tar cf a --checkpoint=1 --checkpoint-action=exec=id .
tar cf a --checkpoint-ac=exec=id .
tar cf a -I id .
tar cIf id a .
tar -cIf id a .
tar --use-compress-program=id -cf a .
tar --use-comp=id -cf a .
tar cf a -F id .
tar cFf id a .
tar --info-script=id -cf a .
tar --new-volume-script=id -cf a .
tar cf host:a .
tar -cfhost:a .
tar -cf user@host:a .
tar --file=host:a -c .
tar --rsh-command=id -cf h:a .
tar --rmt-command=id -cf h:a .
tar -T list -cf a
tar --files-from=list -cf a
tar cTf list a
git -c core.pager=id log
git -c alias.x=!id x
git -c core.sshCommand=id fetch
git -c diff.external=id diff
git -ccore.pager=id log
git --config-env=core.pager=X log
git --exec-path=/tmp status
git -p log
git --paginate log
git x
git foo
git submodule foreach id
git bisect run id
git rebase --exec id
git rebase -x id
git rebase -i
git rebase --ex id
git difftool -x id
git mergetool
git filter-branch --tree-filter id
git grep -O id
git grep -Oid x
git grep --open-files-in-pager=id x
git grep --open id
git log --ext-diff
git diff --textconv
git show --ext
git clone --upload-pack=id .
git clone -u id .
git clone ext::sh x
git clone git@host:x
git clone ssh://h/x
git fetch
git pull
git push --receive-pack=id
git push --exec=id
git ls-remote --upload-pack=id .
git fetch-pack --exec=id .
git config core.pager id
git config --global alias.x !id
git config -e
git config --edit
git config --get x --ed
git commit
git commit -a
git commit --amend
git tag -a v1
git tag -s v1 -m x
git add -e
git add -i
git branch --edit-description
git help x
git --help
git instaweb
git send-email
git archive --remote=x
git init --template=x
git worktree --exec
git commit -m x --gpg-sign
git cat-file --textconv x
git cat-file --filters x
sort --compress-program=id
sort --compress-program id
sort --comp id
sort --c id
sort -t -- --compress-program=id
sort --key -- --compress-program=id
split --filter=id
split --filt id
rg --pre id
rg --pre=id x
rg --hostname-bin=id x
fd -x id
fd -X id
fd --exec id
fd --exec-batch id
fd -Hx id
fd --exe id
rsync -e id a b
rsync -ae id a b
rsync --rsh=id a b
rsync --rs id a b
rsync --rsync-path=id a b
rsync a host:b
rsync rsync://h/x b
rsync a host::m
diff -l a b
diff --paginate a b
diff -ul a b
sdiff --diff-program=id a b
sdiff --diff id a b
patch -e
patch --ed
install --strip-program=id -s a b
install --strip-p id a b
wget --use-askpass=id x
wget -e use_askpass=id x
wget --execute=x y
wget --config=f y
zip -T -TT id a b
zip --unzip-command=id a b
zip -qT a b
openssl s_client -engine x
openssl req -engine x
openssl --provider x
tcpdump -z id
tcpdump -nz id
file -z x
gpg --agent-program=id
gpg --photo-viewer id
ip netns exec x id
ip vrf exec x id
ip -b f
npx x
docker run x
ssh host id
ssh -o ProxyCommand=id host
scp -S id a b:
su -c id
watch id
parallel id
script -c id
gdb -ex x
vim -c !id
less f
man -P id x
man --help
busybox sh
chroot / id
ld.so ./x
ld-linux-x86-64.so.2 ./x
strace id
ed f
crontab f
at now
screen id
tmux new id
`

func launchPolicy(t testing.TB) *Policy {
	t.Helper()
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access:    v1alpha1.AccessOpen,
		Binaries:  &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementText, Allowed: strings.Fields(launchList)},
		Arguments: &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func launchCalls(text string) [][]string {
	var calls [][]string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line == "" {
			continue
		}
		words := strings.Fields(line)
		for i, word := range words {
			if !strings.HasPrefix(word, "HEAD~") && word != "1~2d" {
				words[i] = strings.ReplaceAll(strings.ReplaceAll(word, "~", " "), `\n`, "\n")
			}
		}
		calls = append(calls, words)
	}
	return calls
}

func checkCall(policy *Policy, words []string) *Denial {
	return policy.Check(Input{Action: &Action{Type: v1alpha1.ActionStructured, Binary: words[0], Args: words[1:]}})
}

func TestLaunchersOfUnlistedProgramsAreRefused(t *testing.T) {
	t.Parallel()
	policy := launchPolicy(t)
	for _, words := range launchCalls(deniedLaunches + missedLaunches) {
		denial := checkCall(policy, words)
		if denial == nil || denial.Reason != v1alpha1.ReasonLaunchNotAllowed && denial.Reason != v1alpha1.ReasonBinaryNotAllowed {
			t.Errorf("%q: %+v", words, denial)
		}
	}
}

func TestLaunchersOfListedProgramsAreAllowed(t *testing.T) {
	t.Parallel()
	policy := launchPolicy(t)
	for _, words := range launchCalls(allowedLaunches) {
		if denial := checkCall(policy, words); denial != nil {
			t.Errorf("%q: %s: %s", words, denial.Reason, denial.Message)
		}
	}
}
