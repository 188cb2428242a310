package calls

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// fileText is what is read: five hundred lines, some 20 KB.
var fileText = strings.Repeat("a line of some forty bytes of ordinary text\n", 500)

// fileCalls are what is measured in turns, by the word in a call's name.
var fileCalls = []struct {
	word, title string
	spec        v1alpha1.ToolCallSpec
}{
	{"true", timeTrue, v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "true"}}},
	{"read", timeRead, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "text"}}},
	{"part", timePart, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "text", Limit: ptr.To(int64(20))}}},
	{"list", timeList, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: "."}}},
	{"stat", timeStat, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: "text"}}},
	{"write", timeWrite, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "new", Content: &fileText}}},
	{"python", timePython, v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "print(open('text').read(), end='')"}}},
}

// measureFiles measures file actions in a ready session in turns with the floor and with what does the same by a process.
func (b *sessionBench) measureFiles(ctx context.Context) (err error) {
	room, err := b.newRoom(ctx, sessionsFiles)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(1), "one")
	if err != nil {
		return err
	}
	calls := callsOf(room.Namespace, sessions)
	ofSession := calls.New
	calls.New = func(at metav1.ObjectMeta) client.Object {
		call := ofSession(at).(*v1alpha1.ToolCall)
		word := strings.Split(at.Name, "-")[1]
		for i := range fileCalls {
			if fileCalls[i].word == word {
				of := &fileCalls[i].spec
				call.Spec.Structured, call.Spec.Code, call.Spec.File = of.Structured.DeepCopy(), of.Code.DeepCopy(), of.File.DeepCopy()
			}
		}
		if word == "prepare" {
			call.Spec.Structured = nil
			call.Spec.File = &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "text", Content: ptr.To(fileText)}
		}
		return call
	}
	tracker, err := cluster.Track(ctx, b.client, calls, nil)
	if err != nil {
		return err
	}
	defer tracker.Stop()
	stop, err := b.startFloor(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if failure := stop(); err == nil {
			err = failure
		}
	}()
	if _, err := tracker.Measure(ctx, "one-prepare-0"); err != nil {
		return err
	}
	return b.roundsOfFiles(ctx, tracker)
}

func (b *sessionBench) roundsOfFiles(ctx context.Context, tracker *cluster.Tracker) error {
	for i := range b.session.samples / 3 {
		s, err := b.floor.Tracker.Measure(ctx, fmt.Sprintf("files-%06d", i))
		if err != nil {
			return err
		}
		b.values[timeFilesFloor] = append(b.values[timeFilesFloor], s.Seconds())
		for _, of := range fileCalls {
			s, err := tracker.Measure(ctx, fmt.Sprintf("one-%s-%06d", of.word, i))
			if err != nil {
				return err
			}
			b.values[of.title] = append(b.values[of.title], s.Seconds())
		}
	}
	if err := b.clearFloor(ctx); err != nil {
		return err
	}
	return b.release(ctx)
}
