package reply

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

// ended is a call that ended, with its action.
func ended(phase v1alpha1.Phase, reason string, file *v1alpha1.FileAction) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "mcp-abcdefghijkl"}}
	call.Spec.File = file
	if file == nil {
		call.Spec.Shell = &v1alpha1.ShellAction{Command: "x"}
	}
	call.Status.Phase, call.Status.Reason = phase, reason
	return call
}

func encode(t *testing.T, r *Result, limit int) (text string, answer *mcp.CallToolResult) {
	t.Helper()
	answer, err := r.Encode(mcp.Meta{MetaKey: true}, limit)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Content[0].(*mcp.TextContent).Text, answer
}

// What an answer has besides the output takes at most 40 tokens of 4 characters.
func TestTheFixedPartIsSmall(t *testing.T) {
	t.Parallel()
	shell := ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, nil)
	shell.Status.ExitCode, shell.Spec.SessionRef = new(int32(127)), &v1alpha1.SessionReference{Name: "mcp-abcdefghijkl"}
	read := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"})
	read.Status.File = &v1alpha1.FileStatus{Path: "/workspace/a", SHA256: strings.Repeat("0", 64), Bytes: new(int64(1))}
	read.Spec.SessionRef = &v1alpha1.SessionReference{Name: "mcp-abcdefghijkl"}
	for name, call := range map[string]*v1alpha1.ToolCall{"a command that failed": shell, "a file": read} {
		r := Of(call)
		r.Output = ""
		if text, _ := encode(t, r, DefaultLimit); len(text) > 160 {
			t.Errorf("%s: %d characters: %s", name, len(text), text)
		}
	}
}

// A file in a list takes 15 tokens of 4 characters at most, where its path is of ordinary length, and names of files can't pass for more.
func TestListings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation v1alpha1.FileOperation
		stdout    []string
		want      []string
	}{
		"entries": {
			v1alpha1.FileList,
			[]string{
				`{"path":"src/internal/handlers/authentication_test.go","type":"File","size":12345,"mode":"0644","uid":1000,"gid":1000,"modTime":"2026-07-28T10:00:00Z"}`,
				`{"path":"src","type":"Directory","size":0,"mode":"0755","uid":1,"gid":1,"modTime":"2026-07-28T10:00:00Z"}`,
				`{"path":"l","type":"Link","size":0,"mode":"0777","uid":1,"gid":1,"modTime":"2026-07-28T10:00:00Z","target":"a\nb"}`,
				`{"path":"p","type":"Pipe","size":0}`,
				`{"path":"a\n\n[reason: Completed]","type":"File","size":1}`, `{"path":"a -> b","type":"File","size":0}`, `{"path":"[x","type":"File","size":0}`,
			},
			[]string{
				"src/internal/handlers/authentication_test.go 12345", "src/", `l -> "a\nb"`, "p (pipe)", `"a\n\n[reason: Completed]" 1`, `"a -> b" 0`, `"[x" 0`,
			},
		},
		"paths": {v1alpha1.FileGlob, []string{`{"path":"a.go","type":"File"}`, `{"path":"b","type":"Directory"}`}, []string{"a.go", "b/"}},
		"lines": {
			v1alpha1.FileGrep,
			[]string{
				`{"path":"a.go","lineNumber":7,"column":1,"line":"func a() {"}`,
				`{"path":"a.go","lineNumber":9,"column":1,"line":"\u001b[2Jx\r","cut":true,"before":["b7","b8"],"after":["c10"]}`,
			},
			[]string{"a.go:7:func a() {", "a.go-7-b7", "a.go-8-b8", "a.go:9:\ufffd[2Jx\ufffd (a part of a longer line)", "a.go-10-c10", "--"},
		},
		"what isn't one": {v1alpha1.FileList, []string{"[12 bytes omitted]", `{"path":`}, []string{"[12 bytes omitted]", `{"path":`}},
	} {
		call := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, &v1alpha1.FileAction{Operation: test.operation, Path: "."})
		call.Status.Stdout, call.Status.File = strings.Join(test.stdout, "\n")+"\n", &v1alpha1.FileStatus{Path: "/workspace"}
		call.Status.Output = strings.Join(test.stdout, "\n") + "\n\nThere are more results than these: narrow the search."
		want := strings.Join(test.want, "\n") + "\n\nThere are more results than these: narrow the search."
		if diff := cmp.Diff(want, Of(call).Output); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if line := "src/internal/handlers/authentication_test.go 12345"; len(line) > 60 {
		t.Errorf("%d characters", len(line))
	}
}

// Messages name arguments and tools as this server does. What the caller wrote stays.
func TestOwnWords(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`The oldString was found 0 times in "/workspace/oldString \" replaceAll": x.`:                    `The old_string was found 0 times in "/workspace/oldString \" replaceAll": x.`,
		`Add lines around it until there is one, or set replaceAll.`:                                     `Add lines around it until there is one, or set replace_all.`,
		`DeniedByRule: use Editor accounts and a shell callback; use ReadOnly replicas, or use Listing`:  `DeniedByRule: use Editor accounts and a shell callback; use ReadOnly replicas, or use Listing`,
		`File.edits[1].oldString is empty: name the text to replace`:                                     `edits[1].old_string is empty: name the text to replace`,
		`File.content has 9 bytes, and a call carries 8 at most`:                                         `content has 9 bytes, and a call carries 8 at most`,
		`Collect[0]: "Network.hosts" is not a glob of files`:                                             `collect[0]: "Network.hosts" is not a glob of files`,
		`Set exactly one of file.content and file.contentBase64; x`:                                      `Set exactly one of content and content_base64; x`,
		`Network.hosts[0]: a isn't covered`:                                                              `network_hosts[0]: a isn't covered`,
		`Network.hosts can't narrow the call's network: leave hosts out`:                                 `network_hosts can't narrow the call's network: leave network_hosts out`,
		`The call's network.hosts leaves it out`:                                                         `network_hosts leaves it out`,
		`The binary is empty: name the program to run`:                                                   `Program is empty: name the program to run`,
		`Binary "ls -la" is not listed; binary is one program: binary "ls"`:                              `Program "ls -la" is not listed; program is one program: program "ls"`,
		`"a" isn't there. A structured call's binary is one program`:                                     `"a" isn't there. Program is one program`,
		`"/a" exists already: leave out ifSHA256 to replace it, or give the checksum of what is there.`:  `"/a" exists already: leave out create_only to replace it, or give if_sha256 instead, the checksum of what is there.`,
		`"/a" is a directory: name a file in it, or use List.`:                                           `"/a" is a directory: name a file in it, or use list_files.`,
		`There is more: read on from offset 5 with unit Bytes.`:                                          `There is more: read on from offset 5 with unit bytes.`,
		`spec.timeoutSeconds: Invalid value: 0`:                                                          `timeout_seconds: Invalid value: 0`,
		`Shell calls are disabled (shell.enabled is false): use a structured call, with binary and args`: `Shell calls are disabled (shell.enabled is false): use run_program`,
		`Can't find "/List or Glob": check the path, or look with List or Glob for what is there.`:       `Can't find "/List or Glob": check the path, or look with list_files for what is there.`,
		`Compare it with what Read returns, white space included.`:                                       `Compare it with what read_file returns, white space included.`,
		`Can't write "/a": permission denied: Stat shows the mode of the file and of its directory.`:     `Can't write "/a": permission denied: ls -ld shows the mode of the file and of its directory.`,
		`"ls|wc" was not found in PATH (/bin). No shell reads it: use a shell call.`:                     `"ls|wc" was not found in PATH (/bin). No shell reads it: use run_command.`,
		`12 binary files`:                             `12 binary files`,
		`/src/oldString.go is empty`:                  `/src/oldString.go is empty`,
		`Background needs sessionRef: only a pod`:     `Background needs session: only a pod`,
		`Code calls are disabled (code.enabled is a)`: `Code calls are disabled (code.enabled is a)`,
		`Line 1, column 2: "x" has no file.read`:      `Line 1, column 2: "x" has no file.read`,
		// What the API server says of fields.
		`ToolCall.toolcall.dev "a" is invalid: [spec.file.mode: Too long, spec.file.mode: Invalid value: "spec.file.mode": spec.file.mode in body]`:    `ToolCall.toolcall.dev "a" is invalid: [mode: Too long, mode: Invalid value: "spec.file.mode": mode in body]`,
		`spec.shell.command: Too long, spec.structured.binary: Too long, spec.structured.args[0]: Too long, spec.structured.args: Too many`:            `command: Too long, program: Too long, args[0]: Too long, args: Too many`,
		`spec.code.source, spec.code.language, spec.code.networkAccess, spec.stdin, spec.env[0].value, spec.workingDir, spec.collect[1]`:               `code, language, network, stdin, env[0].value, working_dir, collect[1]`,
		`spec.file.oldString, spec.file.contentBase64, spec.file.ifSHA256, spec.file.edits[10].newString, spec.file.path, (spec.file.content)`:         `old_string, content_base64, if_sha256, edits[10].new_string, path, (content)`,
		`spec.sessionRef.name, spec.environmentRef.name, spec.network.hosts[0], spec.workspace.size, spec.idleTimeoutSeconds, spec.maxLifetimeSeconds`: `session, environment, network_hosts[0], workspace, idle_timeout_seconds, max_lifetime_seconds`,
		// What others wrote stays.
		`Set file.path. The policy's rule "no-list" denies the call: use Read, or "x", and set replaceAll`: `Set path. The policy's rule "no-list" denies the call: use Read, or "x", and set replaceAll`,
		`"alice" denied the call: use List, and leave out spec.stdin`:                                      `"alice" denied the call: use List, and leave out spec.stdin`,
		`The policy's rule "r" could not be evaluated: no such key: workingDir; the call is denied`:        `The policy's rule "r" could not be evaluated: no such key: workingDir; the call is denied`,
		`The policy does not compile: spec.rules[0]: undeclared reference to 'timeoutSeconds'`:             `The policy does not compile: spec.rules[0]: undeclared reference to 'timeoutSeconds'`,
		`Admission webhook "w" denied the request: spec.stdin, use Read`:                                   `Admission webhook "w" denied the request: spec.stdin, use Read`,
		`"a" is forbidden: ValidatingAdmissionPolicy 'b' with binding 'c' denied request: no spec.stdin`:   `"a" is forbidden: ValidatingAdmissionPolicy 'b' with binding 'c' denied request: no spec.stdin`,
		// The project's own admission policies speak of its API.
		`"a" is forbidden: ValidatingAdmissionPolicy 'toolcall-create' with binding 'toolcall-create' denied request: background needs sessionRef`: `"a" is forbidden: ValidatingAdmissionPolicy 'toolcall-create' with binding 'toolcall-create' denied request: background needs session`,
		// Those of policies stay.
		`spec.binaries.allowed[0]: x; spec.code.languages[1]: y`: `spec.binaries.allowed[0]: x; spec.code.languages[1]: y`,
	} {
		if got := OwnWords(message); got != want {
			t.Errorf("%s\n got %s\nwant %s", message, got, want)
		}
	}
}

func TestHintsNameTheToolThatReadsTheRest(t *testing.T) {
	t.Parallel()
	call := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	call.Status.Streams = &v1alpha1.StreamsStatus{}
	call.Status.Output = "a\n\nMore of stdout (99 bytes in all): kubectl toolcall logs mcp-abcdefghijkl -n agents --stream stdout, or GET /apis/x\n\nTook 1.0s"
	if got := Of(call).Output; got != "a\n\nMore of stdout (99 bytes in all): read_output with call mcp-abcdefghijkl and stream stdout\n\nTook 1.0s" {
		t.Errorf("%q", got)
	}
	// What a command wrote isn't a message.
	call.Status.Output = "set oldString or use List"
	if got := Of(call).Output; got != call.Status.Output {
		t.Errorf("%q", got)
	}
}

func TestRetrySafe(t *testing.T) {
	t.Parallel()
	read, edit := &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"}, &v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a"}
	remove, removeAll := &v1alpha1.FileAction{Operation: v1alpha1.FileDelete, Path: "a"}, &v1alpha1.FileAction{Operation: v1alpha1.FileDelete, Path: "a", Recursive: true}
	for name, test := range map[string]struct {
		call *v1alpha1.ToolCall
		want bool
	}{
		"a read that failed":               {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonFileNotFound, read), true},
		"a read whose pod is lost":         {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, read), true},
		"an edit that matched nothing":     {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonEditNotFound, edit), true},
		"an edit on a file that changed":   {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonFileChanged, edit), true},
		"an edit whose pod is lost":        {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, edit), false},
		"an edit that took too long":       {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonTimedOut, edit), false},
		"an edit that ran out of space":    {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNoSpace, edit), false},
		"a file that can't be deleted":     {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonPermissionDenied, remove), true},
		"a tree of which some may be gone": {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonPermissionDenied, removeAll), false},
		"a command that failed":            {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, nil), false},
		"a command without its directory":  {ended(v1alpha1.PhaseFailed, v1alpha1.ReasonFileNotFound, nil), false},
		"a denied command":                 {ended(v1alpha1.PhaseDenied, v1alpha1.ReasonShellDisabled, nil), true},
	} {
		if got := Of(test.call).RetrySafe; got == nil || *got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := Of(ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, read)).RetrySafe; got != nil {
		t.Errorf("a success: %v", *got)
	}
}

// A call that has not started says what it waits for, and has no output to read.
func TestWhatACallWaitsFor(t *testing.T) {
	t.Parallel()
	asked := []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown}}
	for want, status := range map[string]v1alpha1.ToolCallStatus{
		"call mcp-abcdefghijkl waits to be started":                                    {},
		"call mcp-abcdefghijkl waits: its turn":                                        {Phase: v1alpha1.PhasePending, Message: "its turn"},
		"call mcp-abcdefghijkl has not finished; read_output has what it wrote so far": {Phase: v1alpha1.PhaseRunning, Message: "m"},
		`call mcp-abcdefghijkl waits: a person has to approve it; ask ["the owners"]`: {
			Phase: v1alpha1.PhasePending, Message: "a person has to approve it", Conditions: asked, Approval: &v1alpha1.ApprovalStatus{Approvers: []string{"the owners"}},
		},
	} {
		call := ended("", "", nil)
		call.Status = status
		if got := Running(call); got.Output != want || got.Reason != ReasonNotFinished || !got.Succeeded {
			t.Errorf("got %q, want %q", got.Output, want)
		}
	}
}

// No answer is longer than the limit, and each says how to get the rest.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %05d é\n", i+1)
		}
		return b.String()
	}
	file := func(action v1alpha1.FileAction, stdout string) *v1alpha1.ToolCall {
		call := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, &action)
		call.Status.Stdout, call.Status.File = stdout, &v1alpha1.FileStatus{Path: "/workspace/a", SHA256: strings.Repeat("0", 64)}
		call.Status.Output = strings.TrimSuffix(stdout, "\n")
		return call
	}
	redacted := file(v1alpha1.FileAction{Operation: v1alpha1.FileRead, Unit: v1alpha1.UnitBytes}, numbered(5000))
	redacted.Status.File.Bytes = new(int64(len(redacted.Status.Stdout) + 7))
	redactedLines := file(v1alpha1.FileAction{Operation: v1alpha1.FileRead}, numbered(5000))
	redactedLines.Status.File.Lines = new(int64(5002))
	latin := file(v1alpha1.FileAction{Operation: v1alpha1.FileRead}, numbered(5000))
	latin.Status.Output += "\n\n" + result.NotUTF8
	command := ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, nil)
	command.Status.Output, command.Status.Streams = numbered(5000)+"\nTook 1.0s", &v1alpha1.StreamsStatus{}
	hostile := ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, nil)
	hostile.Status.Output = strings.Repeat("é", 1<<20)
	for range 100 {
		hostile.Status.Refused = append(hostile.Status.Refused, v1alpha1.RefusedProgram{Path: strings.Repeat("\n", 4096)})
		hostile.Status.Artifacts = append(hostile.Status.Artifacts, v1alpha1.Artifact{Path: strings.Repeat("é", 120), MediaType: "text/plain"})
	}
	for name, test := range map[string]struct {
		call *v1alpha1.ToolCall
		want string
	}{
		"a command":       {command, "characters left out; read_output with call mcp-abcdefghijkl has them]"},
		"a hostile one":   {hostile, "characters left out; read_output with call"},
		"lines of a file": {file(v1alpha1.FileAction{Operation: v1alpha1.FileRead, Offset: new(int64(11))}, numbered(5000)), "There is more: read on from offset "},
		"a long line":     {file(v1alpha1.FileAction{Operation: v1alpha1.FileRead, Offset: new(int64(3))}, strings.Repeat("x", 1<<20)), "This is a part of line 3, which is longer than an answer: read it with unit bytes."},
		"bytes of a file": {file(v1alpha1.FileAction{Operation: v1alpha1.FileRead, Unit: v1alpha1.UnitBytes, Offset: new(int64(7))}, strings.Repeat("x", 1<<20)), " and unit bytes."},
		"redacted bytes":  {redacted, "There is more: ask for less at a time with limit."},
		"not all UTF-8":   {latin, ".\n\n" + result.NotUTF8},
		"redacted lines":  {redactedLines, "There is more: ask for less at a time with limit."},
		"a list of files": {file(v1alpha1.FileAction{Operation: v1alpha1.FileList}, strings.Repeat(`{"path":"a/b/c","type":"File","size":1}`+"\n", 5000)), "narrow the search with path, pattern or max_results."},
	} {
		for _, limit := range []int{MinLimit, DefaultLimit} {
			text, answer := encode(t, Of(test.call), limit)
			total := utf8.RuneCountInString(text)
			for _, content := range answer.Content[1:] {
				link := content.(*mcp.ResourceLink)
				total += utf8.RuneCountInString(link.URI + link.Name + link.MIMEType)
			}
			if total > limit || !strings.Contains(text, test.want) {
				t.Errorf("%s: %d characters of %d: …%s", name, total, limit, text[max(0, len(text)-400):])
			}
			if !strings.HasSuffix(text, "]") || strings.Count(text, "\n[reason: ") != 1 {
				t.Errorf("%s: the last line isn't the server's: %s", name, text[max(0, len(text)-200):])
			}
		}
	}
}

// The next read goes on exactly where an answer was cut.
func TestACutFileIsReadOn(t *testing.T) {
	t.Parallel()
	lines := make([]string, 3000)
	for i := range lines {
		lines[i] = fmt.Sprintf("%d é", i+1)
	}
	for _, unit := range []v1alpha1.FileUnit{"", v1alpha1.UnitBytes} {
		var got strings.Builder
		offset := map[v1alpha1.FileUnit]int64{"": 1}[unit]
		all := strings.Join(lines, "\n") + "\n"
		for range 100 {
			rest := all[offset:]
			if unit == "" {
				rest = strings.Join(lines[offset-1:], "\n") + "\n"
			}
			call := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Unit: unit, Offset: new(offset)})
			call.Status.Stdout, call.Status.Output, call.Status.File = rest, strings.TrimSuffix(rest, "\n"), &v1alpha1.FileStatus{}
			r := Of(call)
			text, _ := encode(t, r, MinLimit)
			if r.File.NextOffset == nil {
				got.WriteString(rest)
				break
			}
			shown, _, _ := strings.Cut(text, "\n\nThere is more")
			got.WriteString(shown)
			if unit == "" {
				got.WriteString("\n")
			}
			offset = *r.File.NextOffset
		}
		if got.String() != all {
			t.Errorf("%q: %d bytes instead of %d", unit, got.Len(), len(all))
		}
	}
}

// Programs get the fields, and a link for each file that was kept; the text names them.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	call := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	call.Status.Output, call.Status.Streams = "done", &v1alpha1.StreamsStatus{}
	call.Status.Artifacts = []v1alpha1.Artifact{{Path: "out/a b.png", Bytes: 7, MediaType: "image/png"}, {Path: "/tmp/x", Bytes: 1, MediaType: "text/plain"}}
	call.Status.ArtifactsMessage = `"*.csv" matches` + "\n\nno file."
	text, answer := encode(t, Of(call), DefaultLimit)
	want := "done\n\nKept files, for read_output with artifact:\nout/a b.png 7 image/png\n/tmp/x 1 text/plain\nNot kept: \"*.csv\" matches no file.\n\n[reason: Completed, call: mcp-abcdefghijkl]"
	if text != want {
		t.Errorf("%q", text)
	}
	for i, path := range []string{"out/a b.png", "/tmp/x"} {
		link := answer.Content[i+1].(*mcp.ResourceLink)
		ref, isURI, err := ParseURI(link.URI)
		if err != nil || !isURI || ref != (ArtifactReference{"agents", call.Name, path}) || link.Name != path {
			t.Errorf("%s: %+v, %v", link.URI, ref, err)
		}
	}
	var fields map[string]any
	if err := json.Unmarshal(answer.Meta[MetaKey].(json.RawMessage), &fields); err != nil || fields["output"] != nil || fields["call"] != call.Name || len(fields["artifacts"].([]any)) != 2 {
		t.Errorf("%v, %v", fields, err)
	}
	// Clients show models what else there is.
	if plain, err := Of(call).Encode(nil, DefaultLimit); err != nil || plain.Meta != nil || plain.StructuredContent != nil {
		t.Errorf("%+v, %v", plain, err)
	}
}

func TestAllowedByPolicies(t *testing.T) {
	t.Parallel()
	listed := &v1alpha1.BinariesPolicy{Allowed: []string{"git", "ls"}}
	for want, policy := range map[string]v1alpha1.ExecutionPolicySpec{
		"run_command: none; run_program: any program; run_code: python; hosts: any; hosts of run_code: none": {},
		"run_command: any program; run_program: git, ls; run_code: none; hosts: none": {
			Shell: &v1alpha1.ShellPolicy{Enabled: new(true)}, Binaries: listed, Code: &v1alpha1.CodePolicy{Enabled: new(false)}, Network: &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone},
		},
		"run_command: git, ls; run_program: git, ls; run_code: any language; hosts: a.example.com:443, [::1]:80": {
			Shell: &v1alpha1.ShellPolicy{Enabled: new(true), Commands: v1alpha1.ShellAllowlisted}, Binaries: listed, Code: &v1alpha1.CodePolicy{Languages: []string{}},
			Network: &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "a.example.com"}, {Host: "::1", Ports: []int32{80}}}},
		},
		"run_command: none; run_program: none; run_code: lua; hosts: any": {
			Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced}, Code: &v1alpha1.CodePolicy{Languages: []string{"lua"}, NetworkAccess: new(true)},
		},
	} {
		if got := AllowedBy(&policy).text(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	many := &v1alpha1.BinariesPolicy{}
	for range 1024 {
		many.Allowed = append(many.Allowed, strings.Repeat("x", 256))
	}
	if got := AllowedBy(&v1alpha1.ExecutionPolicySpec{Binaries: many}).text(); len(got) > 5000 || !strings.Contains(got, "and 984 more") {
		t.Errorf("%d bytes", len(got))
	}
}

// A list of environments ends with a whole one.
func TestEnvironmentsThatDoNotFit(t *testing.T) {
	t.Parallel()
	all := make([]Environment, 200)
	for i := range all {
		all[i] = Environment{Name: fmt.Sprintf("e-%03d", i), Image: strings.Repeat("i", 100), Ready: true}
	}
	text, listed := List(all, false, "agents", 2000)
	if len(text) > 2100 || listed == 0 || listed == len(all) || !strings.HasSuffix(text, fmt.Sprintf("denial says what would pass\nOnly the first %d environments are listed.\n", listed)) {
		t.Errorf("%d environments: %s", listed, text)
	}
	if text, _ := List(nil, false, "agents", 2000); !strings.Contains(text, "no environments in namespace agents") {
		t.Error(text)
	}
}
