package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// missedLaunches are calls like deniedLaunches, which once passed.
const missedLaunches = `
tini id
tini -- ls
patch -p1 -i f
patch f
patch -g1 f
openssl
openssl engine dynamic -pre SO_PATH:x
zip --test a b
tar cMf a b
tar --multi-volume -cf a b
tar -cM -f a b
git tag --verify x
env HOME=/x git status
env GIT_TEST_FSMONITOR=id git status
env ZIP=-TT~id zip a b
env PYTHONBREAKPOINT=x ls
dumb-init ls
gosu root ls
su-exec root ls
systemd-run ls
systemd-socket-activate -l 1 ls
ssh-agent ls
sshpass -p x ls
direnv exec . ls
mise exec -- ls
xargs -I{} -n2 env
xargs -I{} -L1 env
xargs -n1 -I{} env
xargs --max-args=2 -I{} env
xargs -I X -I Y env X
git add --patch
git add --pat
git stash -p
git stash push --patch
git reset -p
git reset --patch HEAD
git checkout -p
git restore -p f
git commit -- -m
git commit -unormal
git commit --author -m
git commit --fixup=amend:x
git commit -m x --squash=y
git rebase --edit-todo
git log --format=%GG
git log --pretty=%G?
git show --format=%an%GK
git for-each-ref --format=%(signature)
git remote update
git remote show origin
git remote prune origin
git remote add -f x y
git remote -v update
git log --help
git bisect run ls
git bisect view
sed s/[/]/x/;y/[/a/;1e~id\n#]/b/
`

// interpreterCalls run code that guards don't judge: the list holds a program that can start any other, and the policy warns.
const interpreterCalls = `
python3 -c x
python3 script.py
python3
python3 -
python3.11 -m http.server
perl -e x
ruby -e x
node -e x
php8.2 -r x
make
make -f x
npm run x
npm test
cargo run
go run x
go build -toolexec=id
gcc-12 -wrapper id x
kubectl exec x
sqlite3 x .shell
m4 f
dc -e !id
`

func TestListedInterpretersPassAndThePolicyWarns(t *testing.T) {
	t.Parallel()
	policy := launchPolicy(t)
	warnings := strings.Join(policy.Warnings(), "\n")
	for _, words := range launchCalls(interpreterCalls) {
		if denial := checkCall(policy, words); denial != nil {
			t.Errorf("%q: %s", words, denial.Message)
		}
		unlisted, err := Compile(&v1alpha1.ExecutionPolicySpec{
			Access:   v1alpha1.AccessOpen,
			Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementText, Allowed: []string{"env"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if denial := checkCall(unlisted, append([]string{"env"}, words...)); denial == nil || denial.Reason != v1alpha1.ReasonLaunchNotAllowed {
			t.Errorf("%q isn't listed: %+v", words, denial)
		}
	}
	if !strings.Contains(warnings, "they run code: python3") {
		t.Errorf("warnings: %s", warnings)
	}
}
