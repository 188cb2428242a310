package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// create makes a call, or one of a name that is free again.
func (s *callStory) create() {
	if s.born >= 8 {
		return
	}
	session, _ := pick(s, s.sessions)
	name := fmt.Sprint("c-", len(s.names))
	if again, ok := pick(s, s.names); ok && s.isOneIn(3) && s.isFree(again) {
		name = again
	} else {
		s.names = append(s.names, name)
	}
	s.born++
	c := s.CallIn(session, name, func(c *v1alpha1.ToolCall) {
		c.Spec.Background = s.isOneIn(5)
		if s.isOneIn(2) {
			c.Spec.SessionRef.UID = string(session.UID)
		}
		if s.isOneIn(6) {
			c.Finalizers = []string{"example.com/held"}
		}
	})
	s.created(c)
	s.note("create %s %s in %s background %v", name, c.UID, session.Name, c.Spec.Background)
}

func (s *callStory) isFree(name string) bool {
	return apierrors.IsNotFound(fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: name}, &v1alpha1.ToolCall{}))
}

// live is a call as it is now.
func (s *callStory) live() (*v1alpha1.ToolCall, bool) {
	name, ok := pick(s, s.names)
	call := &v1alpha1.ToolCall{}
	if !ok || fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: name}, call) != nil {
		return nil, false
	}
	return call, true
}

func (s *callStory) cancelOne() {
	if call, ok := s.live(); ok && !call.Status.Phase.Terminal() {
		s.note("cancel %s", call.Name)
		s.wasCancelled(string(call.UID))
		s.Cancel(call)
	}
}

func (s *callStory) deleteOne() {
	if name, ok := pick(s, s.names); ok {
		s.note("delete %s", name)
		s.remove(name)
	}
}

// remove deletes a call, if it is there.
func (s *callStory) remove(name string) {
	call := &v1alpha1.ToolCall{}
	err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: name}, call)
	if err == nil {
		s.wasCancelled(string(call.UID))
		var unseen []client.DeleteOption
		if call.Status.Phase.Terminal() {
			unseen = append(unseen, client.DisableReadYourWritesConsistency)
		}
		err = s.World.Client.Delete(context.Background(), call, unseen...)
	}
	if client.IgnoreNotFound(err) != nil {
		s.T.Fatal(err)
	}
}

// free takes the foreign finalizers away.
func (s *callStory) free() {
	calls := &v1alpha1.ToolCallList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), calls, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	for i := range calls.Items {
		call := &calls.Items[i]
		if len(call.Finalizers) > 0 {
			s.note("%s loses its finalizer", call.Name)
			s.wasEdited(string(call.UID))
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			if err := s.World.Client.Patch(context.Background(), call, patch, client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil {
				s.T.Fatal(err)
			}
		}
	}
}

// lose has a connection break, with what is under way on it, and often come back.
func (s *callStory) lose() {
	if p, ok := pick(s, s.all()); ok {
		s.note("%s loses its connection", p.Job)
		p.Disconnect()
		if n := len(p.Calls); n > 0 && s.isOneIn(4) {
			// It breaks again within the hello.
			if conn, err := p.Dial(s.random.IntN(n)); err == nil {
				conn.Close()
			}
		}
		if !s.isOneIn(3) {
			s.redial()
		}
	}
}

func (s *callStory) redial() {
	for _, p := range s.all() {
		if p.Conn == nil {
			p.Connect()
			s.note("%s connects with %d calls", p.Job, len(p.Calls))
		}
	}
}

// die has a process end, as its kubelet says, or with its Node.
func (s *callStory) die() {
	p, ok := pick(s, s.all())
	if !ok || !s.isOneIn(4) || p.Begun == nil && !s.isOneIn(3) {
		return
	}
	s.note("the process of %s dies on %s", p.Job, p.Config.Hello.Node)
	if p.Config.Hello.Node == "node-1" || p.Begun == nil {
		p.Exit(corev1.PodFailed)
		return
	}
	p.Kill()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Config.Hello.Node}}
	if err := s.World.Client.Delete(context.Background(), node, client.DisableReadYourWritesConsistency); err != nil {
		s.T.Fatal(err)
	}
}

// crash has another operator take over. Its cache may be behind, even from the beginning, and what the one before it wrote
// may arrive late.
func (s *callStory) crash() {
	s.note("the operator crashes")
	if s.isOneIn(4) {
		s.endUnseen()
	}
	switch {
	case s.client.Calls == nil && s.isOneIn(2):
		s.client.Sessions = nil
	case s.client.Calls == nil && s.client.Sessions == nil:
		s.fallBehind()
	default:
		s.note("the new operator's cache shows what was there before it")
	}
	for _, p := range s.all() {
		p.Disconnect()
	}
	s.entered = map[string]bool{}
	s.Restart()
	if !s.isOneIn(4) {
		s.redial()
	}
}

// endUnseen has calls end, of which the next operator's cache will show nothing.
func (s *callStory) endUnseen() {
	s.client.Calls, s.client.Sessions = nil, nil
	s.fallBehind()
	s.client.Sessions = nil
	for range 3 {
		for _, p := range s.all() {
			for _, c := range p.Running() {
				p.Work(c)
			}
		}
		s.flow()
	}
}

// arrive has a late write arrive.
func (s *callStory) arrive() {
	if len(s.client.Late) == 0 {
		return
	}
	i := s.random.IntN(len(s.client.Late))
	write := s.client.Late[i]
	s.client.Late = slices.Delete(s.client.Late, i, i+1)
	s.note("a late write arrives")
	write()
}

func (s *callStory) lag() {
	if s.isOneIn(2) {
		s.client.Calls, s.client.Sessions = nil, nil
		return
	}
	if s.client.Calls == nil && s.client.Sessions == nil {
		s.fallBehind()
	}
}

func (s *callStory) fallBehind() {
	s.note("the cache falls behind")
	if err := s.client.FallBehind(s.Namespace); err != nil {
		s.T.Fatal(err)
	}
}

// flow has everything be looked at once, and all be heard.
func (s *callStory) flow() {
	for _, session := range s.sessions {
		_ = s.KeepError(session)
	}
	s.enter()
	for _, name := range s.names {
		s.lookAt(name)
	}
	for _, p := range s.all() {
		for p.Hear() {
		}
		for p.Say() {
		}
	}
}

func (s *callStory) wait() { s.Elapse(time.Duration(s.random.IntN(8000)) * time.Millisecond) }

func (s *callStory) suspendOne() {
	session, _ := pick(s, s.sessions)
	if _, found := s.Find(session); found && s.plan.claim && s.isOneIn(2) {
		s.note("suspend or resume %s", session.Name)
		s.EditSession(session, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = !spec.Suspend })
	}
}

// finishOne ends a session, or deletes it, or makes another one of its name.
func (s *callStory) finishOne() {
	if !s.isOneIn(6) {
		return
	}
	i := s.random.IntN(len(s.sessions))
	_, found := s.Find(s.sessions[i])
	switch {
	case !found:
		s.sessions[i] = s.newSession(s.sessions[i].Name)
		s.note("create %s again", s.sessions[i].Name)
	case s.isOneIn(2):
		s.note("end %s", s.sessions[i].Name)
		s.EditSession(s.sessions[i], func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	default:
		s.note("delete %s", s.sessions[i].Name)
		if err := s.World.Client.Delete(context.Background(), s.sessions[i]); client.IgnoreNotFound(err) != nil {
			s.T.Fatal(err)
		}
	}
}
