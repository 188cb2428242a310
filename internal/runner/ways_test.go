package runner

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/testing/full"
	"toolcall.dev/operator/internal/testing/ways"
)

// node is the kind of node that supervisors of the test take this machine for; empty for what it is.
var node string

// inEveryWay runs a test as on each node that holds rules in a way of its own, and says how it does.
func inEveryWay(t *testing.T, r *rules.Rules, test func(t *testing.T, w rules.Way)) {
	t.Helper()
	here := Prepare()
	here.Self = nil // supervisors of tests aren't root
	Discard()
	t.Cleanup(func() { node = "" })
	for kind, w := range ways.Of(here, r) {
		node = kind.Name
		t.Run(kind.Name, func(t *testing.T) { test(t, w) })
	}
}

// What a call sees of its list is the same in every way: what isn't listed doesn't run, and the status names it.
func TestAListHoldsInEveryWay(t *testing.T) {
	bin, _ := worlds(t)
	script := write(t, bin, "script", "#!"+real(t, "bash")+"\necho ran\n", 0o755)
	listed := write(t, bin, "listed", "#!/usr/bin/env bash\necho listed\n", 0o755)
	foreign := write(t, bin, "foreign", "#!"+real(t, "id")+"\n", 0o755)
	nested := write(t, bin, "nested", "#!"+script+"\n", 0o755)
	programs := &rules.Programs{Allowed: []string{"true", "env", listed, foreign, nested}, Own: "bash", AllowWritable: true}
	inEveryWay(t, &rules.Rules{Programs: programs}, func(t *testing.T, w rules.Way) {
		o := held(t, &rules.Rules{Policy: "agents", Programs: programs}, `
r() { "$@" 2>/dev/null || echo refused; }
/bin/true && r id; r `+script+`; r `+listed+`; r `+foreign+`; r `+nested+`; r setsid id; r env id
for i in 1 2 3 4 5; do /bin/true & done; wait; (r bash -c 'exec id'); exit 3`)
		want{reason: result.NonZeroExit, exit: result.Exit(3), stdout: new("refused\nrefused\nlisted\nrefused\nrefused\nrefused\nrefused\nrefused\n")}.check(t, o)
		for path, rule := range map[string]string{
			real(t, "id"): result.RuleNotListed, script: result.RuleNotListed, real(t, "setsid"): result.RuleNotListed,
		} {
			if !slices.ContainsFunc(o.Refused, func(p result.Program) bool { return p.Path == path && p.Rule == rule }) {
				t.Errorf("%s wasn't refused as %s: %+v", path, rule, o.Refused)
			}
		}
		for path, rule := range map[string]string{real(t, "id"): result.RuleInterpreter, script: result.RuleInterpreter} {
			if !slices.ContainsFunc(o.Refused, func(p result.Program) bool { return p.Path == path && p.Rule == rule }) {
				t.Errorf("%s wasn't refused as %s: %+v", path, rule, o.Refused)
			}
		}
		for _, path := range []string{real(t, "true"), real(t, "env"), real(t, "bash"), listed} {
			if !slices.ContainsFunc(o.Executed, func(p result.Program) bool { return p.Path == path }) {
				t.Errorf("%s isn't among %+v", path, o.Executed)
			}
		}
		if i := o.Isolation; i.Way != w.Name() || i.LandlockABI != w.Landlock || !i.Programs || i.Writes {
			t.Errorf("isolation %+v, want %+v", i, w)
		}
		if o := held(t, &rules.Rules{Programs: &rules.Programs{Allowed: []string{"true"}, Own: "true"}}, ":"); o.Reason != result.CommandNotFound || o.Started {
			t.Errorf("a command that isn't listed: %s", describe(o))
		}
	})
}

// The kernel gives up such a program when nothing of the former one is left.
func TestAProgramThatCantBeLoadedEndsInEveryWay(t *testing.T) {
	bin, _ := worlds(t)
	whole, err := os.ReadFile(real(t, "true"))
	if err != nil {
		t.Fatal(err)
	}
	headers := binary.LittleEndian.Uint64(whole[32:])
	for header := whole[headers:]; ; header = header[56:] {
		if binary.LittleEndian.Uint32(header) == uint32(elf.PT_LOAD) {
			clear(header[40:48]) // more of it is in the file than in memory
			break
		}
	}
	broken := write(t, bin, "broken", string(whole), 0o755)
	programs := &rules.Programs{Allowed: []string{broken}, Own: filepath.Base(broken), AllowWritable: true}
	inEveryWay(t, &rules.Rules{Programs: programs}, func(t *testing.T, w rules.Way) {
		o := superviseApart(t, supervision{Argv: []string{broken}, Dir: "/", NoNewPrivs: true, Rules: &rules.Rules{Programs: programs}}, nobody(t)).Outcome
		if o.Reason != result.Signaled || o.Isolation.Way != w.Name() {
			t.Errorf("got %s: refused %+v, not found %v", describe(o), o.Refused, o.Isolation.NotFound)
		}
	})
}

// Before Linux 6.2 Landlock doesn't see each way to empty a file.
func TestPathsHoldInEveryWay(t *testing.T) {
	needs(t, "python3")
	bin, work := worlds(t)
	outside, inside := write(t, bin, "outside", "kept", 0o666), write(t, work, "inside", "emptied", 0o666)
	script := `
import ctypes, os, struct
libc = ctypes.CDLL(None)
def try_to(empty):
    try: empty()
    except OSError: pass
outside, inside, T = "` + outside + `", "` + inside + `", os.O_TRUNC
for empty in (lambda: os.truncate(outside, 0), lambda: os.open(outside, os.O_RDONLY | T), lambda: os.open(outside, 3 | T), lambda: os.open(outside, os.O_WRONLY | T),
              lambda: os.open(outside, os.O_RDWR | T), lambda: libc.creat(outside.encode(), 0o600),
              lambda: libc.syscall(2, outside.encode(), T), lambda: libc.syscall(437, -100, outside.encode(), struct.pack("QQQ", T, 0, 0), 24),
              lambda: os.unlink(outside), lambda: os.rename(outside, inside + "2"), lambda: os.link(outside, inside + "3"), lambda: open(outside, "a").write("x")):
    try_to(empty)
print(open(outside).read(), len(open(inside).read()))
open(inside, "w").close(); print(len(open(inside).read()))
os.mkdir("` + work + `/d"); open("` + work + `/d/f", "w").write("x"); import shutil; shutil.move("` + work + `/d/f", "` + work + `/f"); print(open("` + work + `/f").read())
`
	inEveryWay(t, &rules.Rules{WritePaths: []string{work}}, func(t *testing.T, w rules.Way) {
		write(t, work, "inside", "emptied", 0o666)
		os.RemoveAll(filepath.Join(work, "d"))
		o := superviseApart(t, supervision{
			Argv: []string{"python3", "-c", script}, Dir: "/", NoNewPrivs: true, Rules: &rules.Rules{WritePaths: []string{work}},
		}, nobody(t)).Outcome
		want{reason: result.Completed, exit: result.Exit(0), stdout: new("kept 7\n0\nx\n")}.check(t, o)
		if i := o.Isolation; i.Way != rules.WayLandlock || i.LandlockABI != w.Landlock || !i.Writes {
			t.Errorf("isolation %+v, want %+v", i, w)
		}
	})
}

// Where the list alone is held, everything but the attacks on what Landlock holds comes to the same.
func TestNoAttackGetsAnUnlistedProgramToRunInAnyWay(t *testing.T) {
	listOnly, seen := &rules.Rules{Programs: &rules.Programs{}}, map[string]bool{}
	inEveryWay(t, listOnly, func(t *testing.T, w rules.Way) {
		if seen[w.Name()] || w.Name() == rules.WayLandlock && !full.Run() {
			return // another version of Landlock holds a list alike, and the other tests try that way
		}
		seen[w.Name()] = true
		for _, args := range [][]string{
			{"files"}, {"loaders"}, {"scripts"}, {"memory"}, {"descriptors"}, {"children"}, {"threads"}, {"many", "100"},
			{"race-evil", "100"}, {"race-loader", "100"}, {"race-shared", "50"}, {"leaders", "100"}, {"names", "100", "bin"}, {"inherited"},
		} {
			t.Run(args[0], func(t *testing.T) {
				a := newAttacker(t)
				r := a.rules()
				r.WritePaths, r.Programs.AllowWritable = nil, true // the test's programs lie below /tmp
				o := a.prepare(t, args).run(t, r, args...)
				want{reason: result.Completed, exit: result.Exit(0), stdout: new("done\n")}.check(t, o)
				if marks := a.marks(t); len(marks) > 0 {
					t.Errorf("unlisted programs ran: %q", marks)
				}
				if len(o.Refused) == 0 && args[0] != "inherited" || o.Isolation.Way != w.Name() {
					t.Errorf("refused %+v, isolation %+v", o.Refused, o.Isolation)
				}
				for _, p := range o.Executed {
					if p.Path != a.program && p.Path != filepath.Join(a.bin, "one") {
						t.Errorf("%s was executed", p.Path)
					}
				}
			})
		}
	})
}
