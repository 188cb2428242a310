package guards

import (
	"strings"
	"testing"
)

// TestUnknownArgumentsOfLaunchersAreRefused goes through the shell, where words can be unknown.
func TestUnknownArgumentsOfLaunchersAreRefused(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, strings.Fields(launchList)...)
	for _, script := range []string{
		"sort $x", "sort \"$x\"", "sort *", "sort -t \"$x\" $y", "sort -T -t \"$x\"", "sort -- $x; sort $x", "echo a | xargs sort", "tar cf a $x", "tar cf a \"$x\"", "tar $x", "tar \"$x\" a", "git $x", "git log $x", "git log \"$x\"",
		"git commit -m \"$x\" \"$y\"", "git -C $x status", "git commit -m $x", "git diff -m \"$x\"", "awk \"$x\"", "awk $x", "awk \"{print $x}\"", "awk -v x=$y '{print}'", "sed \"$x\"", "sed s/a/$x/", "sed -e \"s/$x/y/\"", "sed -n $x", "sed 's/a/b/' $x", "nice $x",
		"timeout $x ls", "timeout 5 $x", "nice -n $x ls", "flock $x ls", "rsync \"$x\" b", "rg \"$x\"", "fd $x", "env $x ls", "x=--compress-program=id; sort $x", "split \"$x\"", "git clone \"$x\"", "bash -c 'sort $x'", "xargs -I{} git {}", "xargs git log", "xargs -I{} sort {}",
		"find \"./$x\" -execdir sort {} +", "find . -execdir sort {} +", "a=sort; $a", "nice \"$x\"", "openssl \"$x\"", "sort {--compress-program=id,x}", "sort --comp*", "git commit -m -F \"$x\"",
		"x=; flock $x ls id", "x=5; unset x; flock $x ls id", "flock $HOME ls id", "flock $! ls id", "find . \"$HOME-exec\" id ';'", "find . \"$HOME$x\" id ';'", "find . $HOME", "env -u HOME bash -c 'find . \"$HOME\"'", "env HOME=-exec bash -c 'find ~ id \\;'", "HOME=-exec; find ~ id ';'",
		"find . \"${x/a/$@}\"", "tar \"x$y\" a b", "tar cbf 20 host:a .", "tar cf \"a$x\" .", "tar cf ./a --exclude=\"$x\" \"b$y\"", "rsync \"a-$x\" b", "git clone -c core.pager=id https://x", "git fetch git@host:x https://y", "git merge -s id", "git merge --strategy=id x", "git rebase --continue", "git commit -t f -m x",
		"git clone --recurse-submodules https://x", "git config user.name x -e", "git push --signed https://x", "git tag -v x", "git commit --template=f", "sed 'e' -e p", "TAR_OPTIONS=x tar cf a .", "env TAR_OPTIONS=x tar cf a .", "SHELL=id ls", "GIT_DIR=x git log", "GIT_EDITOR=id git commit -m x", "RSYNC_RSH=id rsync a b",
		"for f in *; do sort \"$f\"; done", "for f in src/*; do sort $f; done", "for f in src/*; do read -r f; sort \"$f\"; done", "for f in src/* *; do sort \"$f\"; done", "for f in src/*; do ls; done; sort \"$f\"", "for f in $(ls); do sort \"$f\"; done", "tar cf $(date +%c) .", "tar cf /tmp/$(date \"$x\").tar .",
		"git log --format=\"$x\" s --", "sed -i \"$x\" f", "xargs -I \"$x\" echo", "xargs -n \"$x\" $y", "tar cf \"$x\" .",
	} {
		if denial := checkScript(policy, script); denial == nil {
			t.Errorf("allowed: %q", script)
		}
	}
	for _, script := range []string{
		"sort -- \"$x\"", "sort \"./$x\"", "sort -t , -k 2 -- \"$x\"", "sort -t \"$x\" f", "git commit -m \"$x\"", "git commit -am \"$x\"", "git add -- \"$x\"", "git log -- $x", "awk -v x=\"$y\" '{print x}' \"$f\"", "sed 's/a/b/' -- \"$x\"", "sed 's/a/b/' \"./$x\"",
		"find . -exec sort -- {} +", "echo a | xargs sort --", "tar cf a.tar ./\"$x\"", "timeout 5 ls \"$x\"", "find \"$HOME/x\" \"$PWD\" -name y", "tar czf ./a.tgz \"$HOME/x\"", "n=5; timeout \"$n\" ls", "git config --get user.name", "git clone --depth=1 https://x y", "curl \"$x\"", "jq . $x", "grep $x f", "nice -n 5 echo $x", "x=src; sort $x", "tar xf a.tar -C \"$HOME\"", "rsync -a ./\"$x\" /tmp/y", "find . -exec sort {} +", "for f in src/*.ts; do sort \"$f\"; done", "git bisect start", "git stash show -p", "git remote -v",
	} {
		if denial := checkScript(policy, script); denial != nil {
			t.Errorf("refused: %q: %s", script, denial.Message)
		}
	}
}
