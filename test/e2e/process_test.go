package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// What a program finds that was written for a person's machine.
func TestAProcessFindsWhatPeopleExpect(t *testing.T) {
	sessionFirst(t, testAProcessFindsWhatPeopleExpect, wayCold, wayWarm, wayImage)
}

func testAProcessFindsWhatPeopleExpect(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "stranger", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To(int64(12345))}
	})
	for name, c := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want string
	}{
		"git at the top of the workspace": {shell("git init -q . && git config user.name a && git status --short -uno && git rev-parse --show-toplevel"), "/workspace\n"},
		"a module beside a snippet":       {code("python", "open('helper_mod.py', 'w').write('def f():\\n    return 41 + 1\\n')\nimport helper_mod\nprint(helper_mod.f())"), "42\n"},
		"worker processes": {code("python", `import multiprocessing as mp
def f(x):
    return x * x
if __name__ == '__main__':
    with mp.get_context('spawn').Pool(2) as p:
        print(p.map(f, [1, 2, 3]))`), "[1, 4, 9]\n"},
		"a snippet's own file": {code("python", "import pathlib\np = pathlib.Path(__file__)\nprint(p.is_file(), p.suffix)"), "True .py\n"},
		"a home of any user's": {in("stranger", shell(`echo x >"$HOME/f" && cat ~/f`)), "x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, sp.run(t, c.spec), succeeded(c.want))
		})
	}
	t.Run("what becomes of a child in the background", func(t *testing.T) {
		t.Parallel()
		call := sp.run(t, shell("sleep 600 >/dev/null 2>&1 & echo started"))
		expect(t, call, succeeded("started\n"))
		if !strings.Contains(call.Status.Output, "1 process that the command left running was ended with it.") || !strings.Contains(call.Status.Output, "background: true") {
			t.Errorf("the output is %q", call.Status.Output)
		}
	})
}
