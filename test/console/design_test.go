package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// axe is the program that checks pages; make test-programs installs it. pictures is where pictures of the page go.
const (
	axe      = "../../bin/test/node/axe/node_modules/axe-core/axe.min.js"
	pictures = "../../bin/pictures"
)

// state is one that the page can be in.
type state struct{ name, hash, ready string }

// TestThePageIsAccessible checks each state, wide and narrow, light and dark, against the rules of WCAG 2.1, level AA, that a
// program can check. It keeps a picture of each.
func TestThePageIsAccessible(t *testing.T) {
	source, err := os.ReadFile(axe)
	if err != nil {
		t.Fatalf("make test-programs installs what checks pages: %v", err)
	}
	must(t, os.MkdirAll(pictures, 0o755))
	f := newFixture(t)
	f.showcase()
	p := f.open("/")
	p.do("Emulation.setScrollbarsHidden", params{"hidden": true}, nil)
	p.check(string(source), state{name: "token"})
	p.signIn(f.viewer(rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, Verbs: []string{"use"}}), f.namespace)
	for _, s := range []state{
		{"list", "#/calls/" + f.namespace, "document.querySelectorAll('tbody tr').length > 10"},
		{"sessions", "#/sessions/" + f.namespace, "document.querySelectorAll('tbody tr').length === 2"},
		{"succeeded", "#/call/" + f.namespace + "/build-web", "document.querySelectorAll('.artifact').length === 2 && document.querySelector('#output').textContent.includes('complete')"},
		{"failed", "#/call/" + f.namespace + "/test-api", "document.querySelector('#stderr').textContent.includes('FAIL') && document.querySelector('#output').textContent.includes('complete')"},
		{"denied", "#/call/" + f.namespace + "/fetch-notes", "document.querySelector('#advice dd')"},
		{"approval", "#/call/" + f.namespace + "/push-main", "document.querySelector('#advice dd')"},
		{"running", "#/call/" + f.namespace + "/watch-logs", "document.querySelector('#stdout').textContent.includes('listening')"},
	} {
		p.show(s.hash)
		p.await(s.ready)
		p.check(string(source), s)
	}
}

// check looks at a state in each size and colour.
func (p *page) check(axe string, s state) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{2560, 1440, 360} {
			p.do("Emulation.setDeviceMetricsOverride", params{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
			p.do("Emulation.setEmulatedMedia", params{"features": []params{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
			name := fmt.Sprintf("%s-%s-%d", s.name, scheme, width)
			p.picture(name)
			p.eval(axe, nil)
			var violations []string
			p.eval(`axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then((found) => found.violations.flatMap((v) =>
				v.nodes.map((n) => v.id + ' ' + n.target.join(' ') + ': ' + n.failureSummary)))`, &violations)
			for _, violation := range violations {
				p.t.Errorf("%s: %s", name, violation)
			}
			wider := 0
			p.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth", &wider)
			if wider > 0 {
				p.t.Errorf("%s: the page is %d pixels too wide", name, wider)
			}
		}
	}
	p.do("Emulation.clearDeviceMetricsOverride", nil, nil)
}

// picture keeps a picture of the whole page.
func (p *page) picture(name string) {
	p.t.Helper()
	size, taken := struct{ Width, Height int }{}, struct{ Data string }{}
	p.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done({width: innerWidth, height: Math.max(innerHeight, document.documentElement.offsetHeight)}))))`, &size)
	clip := params{"x": 0, "y": 0, "width": size.Width, "height": size.Height, "scale": 1}
	p.do("Page.captureScreenshot", params{"format": "png", "captureBeyondViewport": true, "clip": clip}, &taken)
	raw, err := base64.StdEncoding.DecodeString(taken.Data)
	must(p.t, err)
	must(p.t, os.WriteFile(filepath.Join(pictures, name+".png"), raw, 0o644))
}

// shown is a call of the showcase.
type shown struct {
	name, command, requester, session string
	started                           time.Duration
	status                            v1alpha1.ToolCallStatus
}

// showcase makes calls with every outcome.
func (f *fixture) showcase() {
	f.t.Helper()
	for name, requester := range map[string]string{"fix-login": "agent-7@search", "weekly-report": "reporter@finance"} {
		session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
		session.Spec.RequestedBy = &v1alpha1.Requester{Username: requester}
		must(f.t, f.admin.Create(f.t.Context(), session))
		session.Status = v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady, Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}, Pod: name + "-0"}
		must(f.t, f.admin.Status().Update(f.t.Context(), session))
	}
	for i, s := range showcase() {
		call := f.create(s.name, s.command, func(c *v1alpha1.ToolCall) {
			c.Labels = map[string]string{"team": []string{"search", "web"}[i%2]}
			c.Spec.RequestedBy = &v1alpha1.Requester{Username: s.requester}
			if s.session != "" {
				c.Spec.SessionRef = &v1alpha1.SessionReference{Name: s.session}
			}
		})
		f.write(call)
		s.status.Environment = &v1alpha1.ResolvedEnvironment{Name: "tools", WorkingDir: "/workspace"}
		s.status.Action = &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: s.command[:min(40, len(s.command))]}
		if s.status.Phase != v1alpha1.PhaseDenied && s.status.Phase != v1alpha1.PhasePending {
			s.status.StartTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-s.started)))
		}
		f.report(call, s.status)
	}
}

// write writes the output of a call of the showcase.
func (f *fixture) write(call *v1alpha1.ToolCall) {
	text := map[string][2]string{
		"build-web": {"\x1b[1m> web@4.2.0 build\x1b[0m\n\x1b[36mvite v7.1\x1b[0m building for production...\n\x1b[32m✓\x1b[0m 214 modules transformed.\n" +
			"dist/\x1b[36mindex.html\x1b[0m                  \x1b[2m  0.46 kB\x1b[0m\ndist/\x1b[36massets/index-DiwrgTda.css\x1b[0m   \x1b[2m 12.90 kB\x1b[0m\n\x1b[33mwarning:\x1b[0m 1 chunk is larger than 500 kB\n\x1b[32m✓ built in 2.31s\x1b[0m\n", ""},
		"test-api": {"=== RUN   TestLogin\n=== RUN   TestLogout\n--- \x1b[32mPASS\x1b[0m: TestLogout (0.02s)\nok  \tapi/session\t0.031s\n",
			"--- \x1b[1;31mFAIL\x1b[0m: TestLogin (0.41s)\n    login_test.go:48: got \x1b[31m401 Unauthorized\x1b[0m, want \x1b[32m200 OK\x1b[0m\n\x1b[41mFAIL\x1b[0m\tapi/login\t0.440s\n"},
		"watch-logs": {"\x1b[90m12:00:01\x1b[0m \x1b[32mINFO\x1b[0m  listening on :8080\n\x1b[90m12:00:09\x1b[0m \x1b[33mWARN\x1b[0m  slow request: 1.2 s\n", ""},
	}[call.Name]
	for i, which := range []output.Stream{output.Stdout, output.Stderr} {
		stream := outputs.Add(call, which)
		fmt.Fprint(stream, text[i])
		if call.Name != "watch-logs" {
			stream.Finish()
		}
	}
}

// showcase are calls with every outcome.
func showcase() []shown {
	failed := ended(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 4200)
	failed.ExitCode, failed.RetrySafe, failed.Message = ptr.To(int32(1)), ptr.To(false), "The command exited with code 1."
	failed.Refused = []v1alpha1.RefusedProgram{{Path: "/usr/bin/curl", Rule: "NotListed", Count: 2}}
	denied := v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonShellCommandNotAllowed, RetrySafe: ptr.To(true),
		Message: "The command \"curl\" isn't allowed by the policy \"strict\": use git, ls, make, npm or python3",
	}
	denied.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: denied.Reason, Message: denied.Message, LastTransitionTime: metav1.Now()}}
	built := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 2310)
	built.Artifacts = []v1alpha1.Artifact{
		{Path: "dist/coverage.png", Bytes: 48_213, SHA256: "a", MediaType: "image/png", State: v1alpha1.OutputComplete},
		{Path: "dist/report.json", Bytes: 1_904, SHA256: "b", MediaType: "application/json", State: v1alpha1.OutputComplete},
	}
	waiting := func(reason, message string) v1alpha1.ToolCallStatus {
		return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Reason: reason, Message: message}
	}
	running := v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Reason: v1alpha1.ReasonInProgress, Timings: &v1alpha1.CallTimings{
		AcceptedMilliseconds: ptr.To(int64(40)), StartedMilliseconds: ptr.To(int64(300)), Path: v1alpha1.PathWarm,
	}, Conditions: accepted()}
	killed := ended(v1alpha1.PhaseFailed, v1alpha1.ReasonTimedOut, 30_000)
	killed.Message = "The command ran longer than its limit of 30 s and was stopped."
	cancelled := ended(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, 900)
	cancelled.Message = "Somebody asked to cancel the call."
	quick := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 31)
	return []shown{
		{"read-readme", "cat README.md", "agent-7@search", "fix-login", 5 * time.Minute, quick},
		{"list-files", "git ls-files 'api/**'", "agent-7@search", "fix-login", 4*time.Minute + 40*time.Second, quick},
		{"grep-login", "grep -rn 'func Login' api/", "agent-7@search", "fix-login", 4*time.Minute + 10*time.Second, quick},
		{"test-api", "go test ./api/... -run 'Login|Logout' -count=1", "agent-7@search", "fix-login", 3 * time.Minute, failed},
		{"build-web", "npm run build", "agent-7@search", "fix-login", 90 * time.Second, built},
		{"fetch-notes", "curl -s https://notes.example.com/login", "agent-7@search", "fix-login", 0, denied},
		{"push-main", "git push origin fix-login:main", "agent-7@search", "fix-login", 0, waiting(v1alpha1.ReasonAwaitingApproval, "1 more person of the group release has to approve it")},
		{"query-sales", "python3 report.py --week 48", "reporter@finance", "weekly-report", 9 * time.Minute, killed},
		{"query-again", "python3 report.py --week 48 --limit 100", "reporter@finance", "weekly-report", 6 * time.Minute, ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 61_400)},
		{"old-draft", "python3 draft.py", "reporter@finance", "", 20 * time.Minute, cancelled},
		{"watch-logs", "npm run dev", "jane@example.com", "", 35 * time.Second, running},
		{"train-model", "python3 train.py --epochs 3", "jane@example.com", "", 0, waiting(v1alpha1.ReasonQueued, "4 calls run in the environment tools, which has places for 4")},
	}
}

// ended is the status of a call that has ended.
func ended(phase v1alpha1.Phase, reason string, ran int64) v1alpha1.ToolCallStatus {
	s := v1alpha1.ToolCallStatus{
		Phase: phase, Reason: reason, DurationMilliseconds: ptr.To(ran), RetrySafe: ptr.To(false), Pod: "tools-warm-x7k2p", Node: "node-1", TimeoutSeconds: ptr.To(int32(60)),
		Timings:    &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(38)), StartedMilliseconds: ptr.To(int64(240)), FinishedMilliseconds: ptr.To(ran + 260), Path: v1alpha1.PathWarm},
		Conditions: accepted(),
	}
	if phase == v1alpha1.PhaseSucceeded {
		s.ExitCode = ptr.To(int32(0))
	}
	return s
}

func accepted() []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGuardsPassed, LastTransitionTime: metav1.Now()}}
}
