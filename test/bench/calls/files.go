package calls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/internal/stream"
)

// fileText is what is read: five hundred lines, some 20 KB.
var fileText = strings.Repeat("a line of some forty bytes of ordinary text\n", 500)

const pythonTitle = "Python that reads 500 lines"

// fileActions are what is measured of files, by the word in a call's name, each against what does the same.
var fileActions = []struct {
	word, title, against string
	action               v1alpha1.ToolCallSpec
}{
	{"python", pythonTitle, floorTitle, v1alpha1.ToolCallSpec{
		Code: &v1alpha1.CodeAction{Language: "python", Source: "print(open('text').read(), end='')"},
	}},
	{"read", "Read of 500 lines", pythonTitle, v1alpha1.ToolCallSpec{
		File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "text"},
	}},
	{"part", "Read of 20 lines", floorTitle, v1alpha1.ToolCallSpec{
		File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "text", Limit: ptr.To(int64(20))},
	}},
	{"list", "List", floorTitle, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: "."}}},
	{"stat", "Stat", floorTitle, v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: "text"}}},
}

// measureFiles measures file actions in a ready session in turns with the floor and with what does the same by a process.
func (p *part) measureFiles(ctx context.Context) error {
	s, err := p.newSpeaker(ctx, "session", v1alpha1.ExecutionPolicySpec{}, 1)
	if err != nil {
		return err
	}
	text := &v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "text", Content: &fileText}}
	if err := s.run(ctx, "prepare", text); err != nil {
		return err
	}
	scenarios := []*measure.Scenario{p.floorScenario(filesPerRound)}
	for i := range fileActions {
		of := &fileActions[i]
		scenarios = append(scenarios, &measure.Scenario{
			Name: of.title, Against: []string{of.against}, Each: filesPerRound,
			Operate: func(ctx context.Context, n int) error {
				return s.run(ctx, fmt.Sprintf("%s-%06d", of.word, n), &of.action)
			},
		})
	}
	return p.inTurns(ctx, scenarios...)
}

// transferBlocks make a file of 100 MiB.
const transferBlocks = 100 << 20 / stream.BlockSize

// measureTransfer sends a file of 100 MiB into a session and back, in turns with kubectl cp and a bare pod that has tar.
func (p *part) measureTransfer(ctx context.Context) error {
	s, err := p.newSpeaker(ctx, "session", v1alpha1.ExecutionPolicySpec{}, 1)
	if err != nil {
		return err
	}
	namespace := s.session.Namespace
	if err := p.startPod(ctx, namespace, execPod, "sleep", "86400"); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "toolcall-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	content, err := io.ReadAll(stream.Written{Seed: "file", Blocks: transferBlocks}.Reader(output.Stdout))
	if err != nil {
		return err
	}
	up, down := filepath.Join(folder, "up"), filepath.Join(folder, "down")
	if err := os.WriteFile(up, content, 0o600); err != nil {
		return err
	}
	cp := func(title, program, from, to string, against ...string) *measure.Scenario {
		return &measure.Scenario{
			Name: title, Against: against,
			Operate: func(ctx context.Context, _ int) error { return execute(ctx, program, "cp", "-n", namespace, from, to) },
			Clear: func(context.Context) error {
				if to != down {
					return nil
				}
				got, err := os.ReadFile(down)
				if err == nil && !bytes.Equal(got, content) {
					err = fmt.Errorf("another file came down, of %d bytes", len(got))
				}
				if err != nil {
					return err
				}
				return os.Remove(down)
			},
		}
	}
	const upThere, downThere = "100 MiB up into a bare pod, kubectl cp", "100 MiB down from a bare pod, kubectl cp"
	pod, session := execPod+":/tmp/big", s.session.Name+":/tmp/big"
	return p.inTurns(ctx, cp(upThere, p.kubectl, up, pod),
		cp("100 MiB up into a session, kubectl toolcall cp", p.plugin, up, session, upThere),
		cp(downThere, p.kubectl, pod, down), cp("100 MiB down from a session, kubectl toolcall cp", p.plugin, session, down, downThere))
}
