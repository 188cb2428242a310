package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	auditing "toolcall.dev/operator/controllers/audit"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/testing/fixture"
	"toolcall.dev/operator/internal/testing/full"
)

// world is a namespace with an audit log, and an operator that does nothing but write it.
type world struct {
	*fixture.World
	path    string
	lines   int
	stop    func()
	auditor *auditing.Auditor
}

func newWorld(t *testing.T) *world {
	return &world{World: fixture.NewWorld(t), path: filepath.Join(t.TempDir(), "audit.log")}
}

// mortal is a sink of a process that can be killed.
type mortal struct {
	file   *audit.File
	isDead atomic.Bool
}

func (m *mortal) Write(r audit.Record) error {
	if m.isDead.Load() {
		return errors.New("the process is dead")
	}
	return m.file.Write(r)
}

// lead starts an operator. stop has it stop in order, and kill without a further word.
func (w *world) lead() (kill func()) {
	w.T.Helper()
	watching, err := client.NewWithWatch(fixture.ApiServer, client.Options{Scheme: fixture.Shared.GetScheme()})
	if err != nil {
		w.T.Fatal(err)
	}
	sink := &mortal{file: &audit.File{Path: w.path, MaxBytes: 64 << 10, MaxFiles: 100}}
	queue := audit.NewQueue(sink, logr.Discard())
	auditor := &auditing.Auditor{
		Client: watching, Objects: apicache.Reader{Reader: fixture.Shared.GetClient(), Live: fixture.Shared.GetAPIReader()},
		Requesters: &access.Requesters{Reader: fixture.Shared.GetAPIReader()},
		Namespaces: []string{w.Namespace}, Clock: clock.RealClock{}, Log: logr.Discard(), Written: sink.file.IDs, Add: queue.Add,
	}
	w.auditor = auditor
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = queue.Start(ctx) })
	running.Go(func() { _ = auditor.Start(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		sink.file.Close()
	})
	w.T.Cleanup(w.stop)
	return func() {
		sink.isDead.Store(true)
		w.stop()
	}
}

// records are those that are in the log, by ID. lines counts them, which is exact while nobody writes.
func (w *world) records() map[string]audit.Record {
	w.T.Helper()
	files, err := filepath.Glob(w.path + "*")
	if err != nil {
		w.T.Fatal(err)
	}
	all := map[string]audit.Record{}
	w.lines = 0
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			w.T.Fatal(err)
		}
		raw = raw[:bytes.LastIndexByte(raw, '\n')+1] // the last line may still be written
		for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
			var r audit.Record
			if lines.Text() == torn {
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Schema != audit.Schema {
				w.T.Fatalf("%v: %q", err, lines.Bytes())
			}
			all[r.ID] = r
			w.lines++
		}
	}
	return all
}

// call creates a call as its creator does.
func (w *world) call(name string) *v1alpha1.ToolCall {
	return w.Call(name, func(c *v1alpha1.ToolCall) {
		c.Spec.Shell = nil
		c.Spec.Structured = &v1alpha1.StructuredAction{Binary: "echo", Args: []string{"swordfish"}}
	})
}

// end writes the status of a call that has ended.
func (w *world) end(call *v1alpha1.ToolCall) {
	w.T.Helper()
	before := call.DeepCopy()
	call.Status.Phase, call.Status.Reason, call.Status.Message = v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, "done"
	call.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: "env"}
	call.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: "Completed", LastTransitionTime: metav1.Now()}}
	if err := fixture.Shared.GetClient().Status().Patch(context.Background(), call, client.MergeFrom(before), client.DisableReadYourWritesConsistency); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) remove(o client.Object) {
	w.T.Helper()
	if err := fixture.Shared.GetClient().Delete(context.Background(), o, client.DisableReadYourWritesConsistency); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) recorded(uid types.UID) (r audit.Record, is bool) {
	r, is = w.records()[audit.CallID(string(uid))]
	return r, is
}

// Five operators are killed while calls end. Some calls are deleted as soon as they have ended, with an operator there.
func TestEachCallIsRecordedOnceOverKills(t *testing.T) {
	w := newWorld(t)
	count := 150
	if full.Run() {
		count = 1000
	}
	const lives = 6
	uids := map[types.UID]bool{}
	for life := range lives {
		kill := w.lead()
		var last *v1alpha1.ToolCall
		for i := range count / lives {
			call := w.call(fmt.Sprintf("c-%d-%d", life, i))
			uids[call.UID] = true
			if w.end(call); i%2 == 0 {
				last = call
			}
		}
		switch {
		case life == lives-1:
			fixture.Eventually(t, func() bool { return len(w.records()) >= len(uids) })
		case life%2 == 0:
			// In the middle of a line, and with the half of the calls not recorded.
			kill()
			w.tear()
		default:
			fixture.Eventually(t, func() bool { _, is := w.recorded(last.UID); return is })
			w.remove(last)
			kill()
		}
	}
	w.stop()
	records := w.records()
	if len(records) != len(uids) || w.lines != len(uids) {
		t.Errorf("%d lines with %d records of %d calls", w.lines, len(records), len(uids))
	}
	for uid := range uids {
		if _, is := records[audit.CallID(string(uid))]; !is {
			t.Errorf("call %s has no record", uid)
		}
	}
}

// Retention asks before it deletes a call. A new leader knows of the calls that the log has as soon as it has listed them.
func TestACallThatEndedIsKnownToTheNextOperator(t *testing.T) {
	w := newWorld(t)
	before, after := w.call("before"), w.call("after")
	w.end(before)
	for range 2 {
		w.lead()
		fixture.Eventually(t, func() bool { return !w.auditor.IsBehind(w.Namespace) })
		if !w.auditor.HasCall(before.UID) || w.auditor.HasCall(after.UID) {
			t.Error("it doesn't know which call has ended")
		}
		if !w.auditor.IsBehind("a-namespace-that-it-does-not-watch") {
			t.Error("it knows what ends where it doesn't look")
		}
		fixture.Eventually(t, func() bool { _, is := w.recorded(before.UID); return is })
		w.stop()
	}
	if !w.auditor.IsBehind(w.Namespace) {
		t.Error("an operator that has stopped knows what ends")
	}
	w.lead()
	w.end(after)
	fixture.Eventually(t, func() bool { return w.auditor.HasCall(after.UID) })
}

// torn is the beginning of a line.
const torn = `{"schema":"toolcall.dev/audit/v1","id":"call/`

// tear leaves the beginning of a line in the log.
func (w *world) tear() {
	w.T.Helper()
	file, err := os.OpenFile(w.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.T.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(torn); err != nil {
		w.T.Fatal(err)
	}
}

func TestACallThatIsDeletedBeforeItsEndIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.lead()
	// The watch is there.
	ended := w.call("ended")
	w.end(ended)
	fixture.Eventually(t, func() bool { _, is := w.recorded(ended.UID); return is })
	call := w.call("deleted")
	w.remove(call)
	fixture.Eventually(t, func() bool { _, is := w.recorded(call.UID); return is })
	if r, _ := w.recorded(call.UID); !r.Outcome.Deleted || r.What.Binary != "echo" {
		t.Errorf("got %+v, %+v", r.Outcome, r.What)
	}
	w.remove(ended)
	session := w.Session("session")
	w.remove(session)
	fixture.Eventually(t, func() bool { _, is := w.records()[audit.SessionID(string(session.UID))]; return is })
}

func TestThePolicySaysWhetherArgumentsAreRecorded(t *testing.T) {
	w := newWorld(t)
	env := w.Environment("env")
	w.lead()
	silent := w.call("silent")
	w.end(silent)
	fixture.Eventually(t, func() bool { _, is := w.recorded(silent.UID); return is })
	if r, _ := w.recorded(silent.UID); r.What.Arguments != "" || r.Outcome.Message != "" || r.Where.Image != env.Spec.Image {
		t.Errorf("got %+v, %+v, %+v", r.What, r.Outcome, r.Where)
	}
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: env.Spec.PolicyRef.Name}}
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"audit":{"arguments":true}}}`))
	if err := w.Client.Patch(t.Context(), policy, change); err != nil {
		t.Fatal(err)
	}
	if !ptr.Deref(policy.Spec.Audit.Arguments, false) {
		t.Fatalf("got %+v", policy.Spec.Audit)
	}
	said := w.call("said")
	w.end(said)
	fixture.Eventually(t, func() bool { _, is := w.recorded(said.UID); return is })
	if r, _ := w.recorded(said.UID); r.What.Arguments != `{"structured":{"args":["swordfish"],"binary":"echo"}}` || r.Outcome.Message != "done" {
		t.Errorf("got %+v, %+v", r.What, r.Outcome)
	}
}

// A person's decision is recorded when the operator says whether it counts.
func TestADecisionAboutACallIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.lead()
	call := w.call("asked")
	decision := fixture.Decision(w.Namespace, call, v1alpha1.DecisionDeny)
	decision.Spec.Digest = "sha256:" + strings.Repeat("0", 64)
	if err := w.Client.Create(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	before := decision.DeepCopy()
	decision.Status.Phase = v1alpha1.ApprovalRejected
	if err := w.Client.Status().Patch(t.Context(), decision, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	id := audit.ApprovalID(string(decision.UID))
	fixture.Eventually(t, func() bool { _, is := w.records()[id]; return is })
	if r := w.records()[id]; r.Kind != audit.KindApproval || r.Name != "asked" || r.What.Type != "Deny" || r.Outcome.Phase != "Rejected" {
		t.Errorf("got %+v, %+v, %+v", r, r.What, r.Outcome)
	}
}
