package e2e

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

func content(text string) func(*v1alpha1.FileAction) {
	return func(f *v1alpha1.FileAction) { f.Content = &text }
}

func replaces(old, by string) func(*v1alpha1.FileAction) {
	return func(f *v1alpha1.FileAction) { f.OldString, f.NewString = old, by }
}

func pattern(text string) func(*v1alpha1.FileAction) {
	return func(f *v1alpha1.FileAction) { f.Pattern = text }
}

// did is the end of a file action that succeeded.
func did(stdout string) outcome {
	return outcome{Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Stdout: stdout}
}

// couldNot is the end of a file action that failed.
func couldNot(reason string) outcome {
	return outcome{Phase: v1alpha1.PhaseFailed, Reason: reason, RetrySafe: ptr.To(false)}
}

// desk is a session with a workspace in the space's environment.
func (sp *space) desk(t *testing.T, name string, adjust ...func(*v1alpha1.ToolSession)) func(v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	sp.awaitIncarnation(t, sp.createSession(t, name, append(adjust, workspace("16Mi"))...), 1)
	return func(spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
		t.Helper()
		spec.SessionRef = &v1alpha1.SessionReference{Name: name}
		return sp.run(t, spec)
	}
}

func TestFilesOfASessionAreReadAndWritten(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	written := run(file(v1alpha1.FileWrite, "src/main.txt", content("one\ntwo\nthree\n")))
	expect(t, written, did(""))
	if f := written.Status.File; f == nil || f.Path != "/workspace/src/main.txt" || !f.Created || *f.Bytes != 14 || f.SHA256 != sum("one\ntwo\nthree\n") {
		t.Errorf("wrote %+v", f)
	}
	if written.Status.Action.Type != v1alpha1.ActionFile || written.Status.Action.Tool != "file.write" {
		t.Errorf("the action is %+v", written.Status.Action)
	}
	// What the runner wrote, a command finds, and the other way round.
	expect(t, run(shell("cat src/main.txt; stat -c %a src/main.txt; printf 'b\\0n' >binary; mkdir .git; echo two >.git/two")), succeeded("one\ntwo\nthree\n644\n"))
	part := run(file(v1alpha1.FileRead, "src/main.txt", func(f *v1alpha1.FileAction) { f.Offset, f.Limit = ptr.To(int64(2)), ptr.To(int64(1)) }))
	expect(t, part, did("two\n"))
	if f := part.Status.File; !f.Truncated || *f.NextOffset != 3 || *f.Lines != 1 || part.Status.Output != "two\n\nThere is more: read on from offset 3." {
		t.Errorf("read %+v, output %q", f, part.Status.Output)
	}
	edited := run(file(v1alpha1.FileEdit, "src/main.txt", replaces("two", "2"), func(f *v1alpha1.FileAction) { f.IfSHA256 = &written.Status.File.SHA256 }))
	expect(t, edited, did(""))
	expect(t, run(file(v1alpha1.FileEdit, "src/main.txt", replaces("one", "1"), func(f *v1alpha1.FileAction) { f.IfSHA256 = &written.Status.File.SHA256 })), couldNot(v1alpha1.ReasonFileChanged))
	expect(t, run(file(v1alpha1.FileGrep, ".", pattern("^[t2]"))), did(`{"path":"src/main.txt","lineNumber":2,"column":1,"line":"2"}`+"\n"+`{"path":"src/main.txt","lineNumber":3,"column":1,"line":"three"}`+"\n"))
	found := run(file(v1alpha1.FileGlob, ".", pattern("**/*.txt")))
	expect(t, found, did(`{"path":"src/main.txt","type":"File"}`+"\n"))
	listed := run(file(v1alpha1.FileList, "/workspace"))
	if names := strings.Count(listed.Status.Stdout, `"path":`); names < 3 || *listed.Status.File.Matches != int64(names) || !strings.Contains(listed.Status.Stdout, `{"path":"src","type":"Directory"`) {
		t.Errorf("listed %q", listed.Status.Stdout)
	}
	expect(t, run(file(v1alpha1.FileMakeDirectory, "a/b", func(f *v1alpha1.FileAction) { f.Mode = "0700" })), did(""))
	expect(t, run(file(v1alpha1.FileMove, "src/main.txt", func(f *v1alpha1.FileAction) { f.Destination = "a/b/moved" })), did(""))
	if stat := run(file(v1alpha1.FileStat, "a/b/moved")); *stat.Status.File.Bytes != 12 || !strings.Contains(stat.Status.Stdout, `"type":"File","size":12,"mode":"0644"`) {
		t.Errorf("stat says %q", stat.Status.Stdout)
	}
	raw := []byte("\x00\xff\xfe binary\n")
	encoded := base64.StdEncoding.EncodeToString(raw)
	expect(t, run(file(v1alpha1.FileWrite, "raw", func(f *v1alpha1.FileAction) { f.ContentBase64 = &encoded })), did(""))
	expect(t, run(shell("sha256sum <raw")), succeeded(sum(string(raw))+"  -\n"))
	expect(t, run(file(v1alpha1.FileDelete, "a", func(f *v1alpha1.FileAction) { f.Recursive = true })), did(""))
	expect(t, run(shell("ls")), succeeded("binary\nraw\nsrc\n"))
}

func TestAFileActionWithoutASessionHasAPodOfItsOwn(t *testing.T) {
	coldFirst(t, testAFileActionWithoutASessionHasAPodOfItsOwn, waySession)
}

func testAFileActionWithoutASessionHasAPodOfItsOwn(t *testing.T, w way) {
	sp := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{"/etc", "/tmp"}, DeniedPaths: []string{"shadow*"}, MaxWriteBytes: ptr.To(int64(8))}
	})
	call := sp.run(t, file(v1alpha1.FileRead, "/etc/passwd", func(f *v1alpha1.FileAction) { f.Limit = ptr.To(int64(1)) }))
	expect(t, call, did("root:x:0:0:root:/root:/bin/bash\n"))
	expect(t, sp.run(t, file(v1alpha1.FileRead, "/etc/shadow")), couldNot(v1alpha1.ReasonPathNotAllowed))
	expect(t, sp.run(t, file(v1alpha1.FileRead, "/usr/bin/env")), couldNot(v1alpha1.ReasonPathNotAllowed))
	expect(t, sp.run(t, file(v1alpha1.FileRead, "/proc/self/environ")), couldNot(v1alpha1.ReasonPathNotAllowed))
	expect(t, sp.run(t, file(v1alpha1.FileWrite, "/tmp/new", content("12345678"))), did(""))
	expect(t, sp.run(t, file(v1alpha1.FileWrite, "/tmp/new", content("123456789"))), couldNot(v1alpha1.ReasonFileTooLarge))
	expect(t, sp.run(t, file(v1alpha1.FileWrite, "/etc/new", content(""))), couldNot(v1alpha1.ReasonPathNotAllowed))
	expect(t, sp.run(t, file(v1alpha1.FileWrite, "/tmp/new")), denied(v1alpha1.ReasonInvalidArguments))
}

func TestFileActionsSayWhyTheyCannot(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	expect(t, run(shell(`echo a >file; echo a a >twice; mkdir dir; mkdir -m 0 closed; ln -s /etc out; mkfifo pipe; head -c 5000000 /dev/zero >large; ln -s loop loop`)), succeeded(""))
	name := strings.Repeat("n", 256)
	for _, c := range []struct {
		spec   v1alpha1.ToolCallSpec
		reason string
		says   string
	}{
		{file(v1alpha1.FileRead, "none"), v1alpha1.ReasonFileNotFound, "none"},
		{file(v1alpha1.FileRead, "dir"), v1alpha1.ReasonIsDirectory, "List"},
		{file(v1alpha1.FileList, "file"), v1alpha1.ReasonNotDirectory, "file"},
		{file(v1alpha1.FileRead, "file/below"), v1alpha1.ReasonNotDirectory, "file"},
		{file(v1alpha1.FileList, "closed"), v1alpha1.ReasonPermissionDenied, "permission"},
		{file(v1alpha1.FileRead, "out/passwd"), v1alpha1.ReasonPathNotAllowed, "/etc"},
		{file(v1alpha1.FileRead, "../etc/passwd"), v1alpha1.ReasonPathNotAllowed, "readPaths"},
		{file(v1alpha1.FileRead, "pipe"), v1alpha1.ReasonPathNotAllowed, "Pipe"},
		{file(v1alpha1.FileRead, "loop"), v1alpha1.ReasonFileError, "loop"},
		{file(v1alpha1.FileWrite, "file", content("b"), func(f *v1alpha1.FileAction) { f.IfSHA256 = ptr.To("") }), v1alpha1.ReasonFileExists, "file"},
		{file(v1alpha1.FileEdit, "file", replaces("b", "c")), v1alpha1.ReasonEditNotFound, "oldString"},
		{file(v1alpha1.FileEdit, "twice", replaces("a", "c")), v1alpha1.ReasonEditAmbiguous, "2"},
		{file(v1alpha1.FileEdit, "large", replaces("a", "c")), v1alpha1.ReasonFileTooLarge, "maxReadBytes"},
		{file(v1alpha1.FileGrep, ".", pattern("(")), v1alpha1.ReasonInvalidPattern, "RE2"},
		{file(v1alpha1.FileGlob, ".", pattern("[")), v1alpha1.ReasonInvalidPattern, "glob"},
		{file(v1alpha1.FileWrite, name, content("")), v1alpha1.ReasonFileError, "255"},
		{file(v1alpha1.FileDelete, "dir"), v1alpha1.ReasonIsDirectory, "recursive"},
		{file(v1alpha1.FileDelete, "/workspace", func(f *v1alpha1.FileAction) { f.Recursive = true }), v1alpha1.ReasonPathNotAllowed, "/workspace"},
	} {
		call := run(c.spec)
		expect(t, call, couldNot(c.reason))
		expectMessage(t, call, c.says)
	}
	// A full volume leaves the file as it was.
	expect(t, run(shell("head -c 20M /dev/zero >rest 2>/dev/null || true")), succeeded(""))
	expect(t, run(file(v1alpha1.FileWrite, "file", content(strings.Repeat("x", 300<<10)))), couldNot(v1alpha1.ReasonNoSpace))
	expect(t, run(shell("cat file; ls -A | grep -c toolcall || true")), succeeded("a\n0\n"))
}

// Files that no program would make: nothing of them is read from elsewhere, takes the runner's memory, or hangs.
func TestFileActionsOnOddFiles(t *testing.T) {
	full.Only(t, "internal/runner/files shows it without a pod")
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	expect(t, run(shell(`set -e
ln /etc/passwd hard 2>/dev/null || echo "no hard link leads out"
echo here >one; ln one two
printf x >"$(printf 'odd\n\t\377\033[31m"')"
for depth in 200 300; do d=deep$depth; for i in $(seq $depth); do d=$d/d; done; mkdir -p $d; echo found >$d/needle; done
truncate -s 1T sparse; printf 'y%.0s' $(seq 100000) >oneline; ln -s /dev/zero endless; ln -s /proc/self/mem memory`)),
		succeeded("no hard link leads out\n"))
	part := run(file(v1alpha1.FileRead, "sparse", func(f *v1alpha1.FileAction) { f.Unit, f.Limit = v1alpha1.UnitBytes, ptr.To(int64(8)) }))
	expect(t, part, did(strings.Repeat("\x00", 8)))
	expect(t, run(file(v1alpha1.FileEdit, "sparse", replaces("a", "b"))), couldNot(v1alpha1.ReasonFileTooLarge))
	expect(t, run(file(v1alpha1.FileRead, "endless")), couldNot(v1alpha1.ReasonPathNotAllowed))
	expect(t, run(file(v1alpha1.FileRead, "memory")), couldNot(v1alpha1.ReasonPathNotAllowed))
	// One of two names gets another file; the other name keeps what it had.
	expect(t, run(file(v1alpha1.FileWrite, "one", content("new\n"))), did(""))
	expect(t, run(shell("cat one two")), succeeded("new\nhere\n"))
	listed := run(file(v1alpha1.FileList, "."))
	if !strings.Contains(listed.Status.Stdout, `"path":"odd\n\t`) || strings.Contains(listed.Status.Stdout, "\x1b") {
		t.Errorf("listed %q", listed.Status.Stdout)
	}
	found := run(file(v1alpha1.FileGrep, ".", pattern("found|y{1000}")))
	if strings.Count(found.Status.Stdout, `/d/needle","lineNumber":1`) != 1 || strings.Contains(found.Status.Stdout, "deep300") || found.Status.File.Skipped == nil {
		t.Errorf("found %q, %+v", clip(found.Status.Stdout, 1000), found.Status.File)
	}
	remove := func(path string) *v1alpha1.ToolCall {
		return run(file(v1alpha1.FileDelete, path, func(f *v1alpha1.FileAction) { f.Recursive = true }))
	}
	expect(t, remove("deep200"), did(""))
	tooDeep := remove("deep300")
	expect(t, tooDeep, couldNot(v1alpha1.ReasonFileError))
	expectMessage(t, tooDeep, "256 directories deep")
	expect(t, run(shell("ls -d deep*")), succeeded("deep300\n"))
}

// Calls write the same file at the same time: each reader finds one of the contents, whole, and of the writes that expect
// what was there before exactly one is done.
func TestFileActionsAtTheSameTime(t *testing.T) {
	full.Only(t, "internal/runner/files shows it without a pod")
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "desk", concurrent(8))
	write := func(spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall { return sp.create(t, inside(session, spec)) }
	expect(t, sp.run(t, inside(session, file(v1alpha1.FileWrite, "shared", content(strings.Repeat("0", 200_000))))), did(""))
	before := sum(strings.Repeat("0", 200_000))
	var writes, reads []*v1alpha1.ToolCall
	for i := range 8 {
		text := strings.Repeat(string(rune('a'+i)), 200_000)
		writes = append(writes, write(file(v1alpha1.FileWrite, "shared", content(text), func(f *v1alpha1.FileAction) { f.IfSHA256 = &before })))
		reads = append(reads, write(file(v1alpha1.FileRead, "shared", func(f *v1alpha1.FileAction) { f.Unit, f.Limit = v1alpha1.UnitBytes, ptr.To(int64(200_000)) })))
	}
	done := 0
	for i, call := range writes {
		if ended := sp.awaitFinished(t, call); ended.Status.Phase == v1alpha1.PhaseSucceeded {
			done++
		} else {
			expect(t, ended, couldNot(v1alpha1.ReasonFileChanged))
		}
		read := sp.awaitFinished(t, reads[i]).Status
		if read.File == nil || read.Stdout == "" || strings.Trim(read.Stdout, read.Stdout[:1]) != "" && !strings.Contains(read.Stdout, "omitted") {
			t.Errorf("a reader found %q, %+v", clip(read.Stdout, 200), read.File)
		}
	}
	if done != 1 {
		t.Errorf("%d of 8 writes that expected the first content were done", done)
	}
}

// What agents try first: each either works, or says what would.
func TestFileActionsThatAgentsTryFirst(t *testing.T) {
	full.Only(t, "internal/runner/files shows it without a pod")
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	says := func(spec v1alpha1.ToolCallSpec, want outcome, texts ...string) {
		t.Helper()
		call := run(spec)
		expect(t, call, want)
		for _, text := range texts {
			if !strings.Contains(call.Status.Output, text) {
				t.Errorf("%s %s: %.500q doesn't say %q", spec.File.Operation, spec.File.Path, call.Status.Output, text)
			}
		}
	}
	expect(t, run(file(v1alpha1.FileWrite, "~/notes.txt", content("x"))), did(""))
	expect(t, run(shell(`cat "$HOME/notes.txt"; ls -d '~' 2>/dev/null || echo none`)), succeeded("xnone\n"))
	expect(t, run(file(v1alpha1.FileWrite, "three.txt", content("a\nb\nc\n"))), did(""))
	says(file(v1alpha1.FileRead, "three.txt", func(f *v1alpha1.FileAction) { f.Offset = ptr.To(int64(100)) }), did(""), "has 3 lines")
	expect(t, run(shell(`printf 'caf\351 one\nplain two\n' >latin.txt; head -c 60000 /dev/urandom >p.png; printf 'a\r\nb\r\n' >crlf
mkdir -p 'app/[id]' && echo x >'app/[id]/page.tsx'; echo x >"$(printf 'a\302\240b')"; printf '*.log\n' >.gitignore; echo two >x.log`)), succeeded(""))
	says(file(v1alpha1.FileEdit, "latin.txt", replaces("caf\ufffd one", "cafe one")), couldNot(v1alpha1.ReasonEditNotFound), "line 1 has bytes that aren't UTF-8", "iconv")
	picture := run(file(v1alpha1.FileRead, "p.png"))
	if s := picture.Status; s.Phase != v1alpha1.PhaseSucceeded || !s.File.Binary || !strings.Contains(s.Output, "binary file of 60000 bytes") || len(s.Output) > 500 {
		t.Errorf("a picture: %s, %+v, %.500q", s.Phase, s.File, s.Output)
	}
	expect(t, run(file(v1alpha1.FileEdit, "crlf", func(f *v1alpha1.FileAction) {
		f.Edits = []v1alpha1.TextReplacement{{OldString: "a\nb", NewString: "x\ny"}, {OldString: "y", NewString: "z"}}
	})), did(""))
	expect(t, run(shell("od -An -c crlf")), succeeded("   x  \\r  \\n   z  \\r  \\n\n"))
	says(file(v1alpha1.FileGlob, ".", pattern("app/[id]/page.tsx")), did(""), `app/\[id\]/page.tsx`)
	says(file(v1alpha1.FileRead, "a b"), couldNot(v1alpha1.ReasonFileNotFound), `a\u00a0b`)
	says(file(v1alpha1.FileGrep, ".", pattern("two"), func(f *v1alpha1.FileAction) { f.RespectGitIgnore, f.ContextLines = true, ptr.To(int32(1)) }),
		did(`{"path":"latin.txt","lineNumber":2,"column":7,"line":"plain two","before":["caf� one"]}`+"\n"))
}

// The image needs nothing for it: this one has no file but the runner.
func TestFileActionsInAnImageWithoutAShell(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	deployment, err := sp.clients.AppsV1().Deployments(operatorNamespace).Get(t.Context(), operatorName, metav1.GetOptions{})
	must(t, err)
	args := deployment.Spec.Template.Spec.Containers[0].Args
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--runner-image=") })
	if at < 0 {
		t.Fatalf("the operator's arguments name no runner image: %q", args)
	}
	sp.newEnvironment(t, "empty", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.WorkingDir = "/workspace"
		e.Spec.Image, e.Spec.ImagePullPolicy = strings.TrimPrefix(args[at], "--runner-image="), corev1.PullIfNotPresent
	})
	run := sp.desk(t, "desk", sessionIn("empty"))
	expect(t, run(shell("true")), neverRan(v1alpha1.ReasonCommandNotFound))
	expect(t, run(file(v1alpha1.FileWrite, "a", content("x\n"))), did(""))
	expect(t, run(file(v1alpha1.FileRead, "a")), did("x\n"))
	expect(t, run(file(v1alpha1.FileGrep, ".", pattern("x"))), did(`{"path":"a","lineNumber":1,"column":1,"line":"x"}`+"\n"))
}

func TestReadingAndWritingFilesAreRightsOfTheirOwn(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessRBAC })
	reader := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader-" + sp.namespace}
	sp.letCreate(t, reader)
	sp.allow(t, "reads", reader, use("file.read"))
	as := sp.as(t, reader.Name)
	for operation, want := range map[v1alpha1.FileOperation]v1alpha1.Phase{v1alpha1.FileStat: v1alpha1.PhaseSucceeded, v1alpha1.FileMakeDirectory: v1alpha1.PhaseDenied} {
		call := sp.newCall(file(operation, "/tmp"))
		must(t, as.Create(t.Context(), call))
		sp.reportOnFailure(t, call)
		if ended := sp.awaitFinished(t, call); ended.Status.Phase != want {
			t.Errorf("%s: %s: %s", operation, ended.Status.Phase, ended.Status.Message)
		}
	}
}

// Commands exchange a directory for links to what is out of reach, as fast as they can, while file actions go through it.
func TestLinksThatChangeMeanwhileLeadNoFileActionOut(t *testing.T) {
	full.Only(t, "internal/runner/files shows it without a pod")
	t.Parallel()
	// Commands may write to the denied directory: so they could make what they want to be read or written there.
	sp := newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{"/workspace", "/usr", "/lib", "/lib64", "/bin", "/dev", "/proc"}, WritePaths: []string{"/workspace", "/dev"}, DeniedPaths: []string{"denied"}}
	})
	run := sp.desk(t, "desk", func(s *v1alpha1.ToolSession) { s.Spec.MaxConcurrentCalls = ptr.To(int32(8)) })
	const prepare = "mkdir -p real/passwd denied/passwd; echo inside >real/name; echo outside >denied/name; ln -s real way"
	expect(t, run(shell(prepare)), succeeded(""))
	exchange := shell(`while :; do
ln -sfn /workspace/denied w2; mv -T w2 way 2>/dev/null; ln -sfn real w3; mv -T w3 way 2>/dev/null
rm -f way; mkdir way 2>/dev/null && echo inside >way/name; rm -r way; ln -s /etc way; ln -sfn denied w4; mv -T w4 way 2>/dev/null
done`)
	exchange.SessionRef, exchange.Background = &v1alpha1.SessionReference{Name: "desk"}, true
	exchanging := sp.create(t, exchange)
	sp.awaitPhase(t, exchanging, v1alpha1.PhaseRunning)
	read := 0
	for i := range 6 {
		for _, name := range []string{"way/name", "way/passwd"} {
			got := run(file(v1alpha1.FileRead, name))
			if got.Status.Stdout != "" && got.Status.Stdout != "inside\n" {
				t.Fatalf("call %s read %q", got.Name, clip(got.Status.Stdout, 100))
			}
			if got.Status.Phase == v1alpha1.PhaseSucceeded {
				read++
			}
		}
		run(file(v1alpha1.FileWrite, fmt.Sprintf("way/new-%d", i), content("x")))
		run(file(v1alpha1.FileMove, "real/name", func(f *v1alpha1.FileAction) { f.Destination = fmt.Sprintf("way/moved-%d", i) }))
		run(file(v1alpha1.FileDelete, "way/passwd", func(f *v1alpha1.FileAction) { f.Recursive = true }))
		run(file(v1alpha1.FileWrite, "real/name", content("inside\n")))
	}
	sp.cancel(t, exchanging)
	sp.awaitFinished(t, exchanging)
	t.Logf("%d of 12 reads found a file", read)
	expect(t, run(shell("ls -A denied; cat denied/name")), succeeded("name\npasswd\noutside\n"))
}
