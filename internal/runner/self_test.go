package runner

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// filteredHelper puts itself under a filter and becomes another program, as a container's runtime does.
func filteredHelper(args []string) {
	runtime.LockOSThread()
	if _, err := filter.Install(filter.DenyNetwork); err != nil {
		panic(err)
	}
	panic(syscall.Exec("/usr/bin/env", append([]string{"env", helperVariable + "=supervise"}, args...), syscall.Environ()))
}

func TestWhatACommandStartedAsIsSaid(t *testing.T) {
	self := publicSelf(t)
	for name, c := range map[string]struct {
		prefix []string
		change func(*supervision)
		want   result.Isolation
	}{
		"a plain user": {want: result.Isolation{
			Self: &rules.Self{User: 65534, Seccomp: rules.SeccompDisabled, UserNamespace: new(false)}, Network: result.NetworkPod,
		}},
		"under a filter": {prefix: []string{"env", helperVariable + "=filtered", self}, want: result.Isolation{
			Self: &rules.Self{User: 65534, Seccomp: rules.SeccompFilter, UserNamespace: new(false)}, Network: result.NetworkPod,
		}},
		"as root of a user namespace": {prefix: []string{"unshare", "--user", "--map-root-user"}, want: result.Isolation{
			Self: &rules.Self{Seccomp: rules.SeccompDisabled, UserNamespace: new(true)}, Network: result.NetworkPod,
		}},
		"without a network": {change: func(s *supervision) { s.DenyNetwork = true }, want: result.Isolation{
			Self: &rules.Self{User: 65534, Seccomp: rules.SeccompDisabled, UserNamespace: new(false)}, Network: result.NetworkNone,
		}},
	} {
		ownRules(t)
		needs(t, "unshare")
		s := supervision{Argv: []string{"id", "-u"}, Dir: "/", NoNewPrivs: true, Harden: true}
		if c.change != nil {
			c.change(&s)
		}
		o := superviseApart(t, s, nobody(t), c.prefix...).Outcome
		if diff := cmp.Diff(&c.want, o.Isolation); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestACommandThatWasNotStartedStartedAsNothing(t *testing.T) {
	if o := runIt(t, t.Context(), program("no-such-program")); o.Started || o.Isolation != nil {
		t.Errorf("got %s, %+v", describe(o), o.Isolation)
	}
}

func TestOnlyWhatTheKernelSaysIsSaid(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t2\n": rules.SeccompDisabled, "Seccomp:\t1\n": rules.SeccompStrict,
		"Seccomp:\t2": rules.SeccompFilter, "Seccomp:\t3\n": "", "Seccomp_filters:\t2\n": "", "": "",
	} {
		if got := seccompMode([]byte(status)); got != want {
			t.Errorf("%q: %q", status, got)
		}
	}
	for mapped, want := range map[string]bool{
		"         0          0 4294967295\n": true, "0 0 65536\n": false, "0 100000 65536\n": false, "0 0 1\n1 1 4294967294\n": false, "": false,
	} {
		if got := isIdentity([]byte(mapped)); got != want {
			t.Errorf("%q: %v", mapped, got)
		}
	}
	if s := readSelf(t.TempDir()); s.Seccomp != "" || s.UserNamespace != nil || s.Check() != nil {
		t.Errorf("without /proc: %+v", s)
	}
}
