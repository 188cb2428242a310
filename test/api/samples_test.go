package api_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The API server and the admission policies take every sample as it is. Without a stamp, kubectl says who creates the calls and
// the sessions among them.
func TestTheSamplesAreTaken(t *testing.T) {
	s := newSpace(t)
	samples := filepath.Join(root, "config", "samples")
	files, err := filepath.Glob(filepath.Join(samples, "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("found the samples %v: %v", files, err)
	}
	wholes := [][]string{{"-k", samples}}
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && strings.Trim(name[:1], "0123456789") != "" {
			wholes = append(wholes, []string{"-f", file})
		}
	}
	for _, whole := range wholes {
		t.Cleanup(func() {
			if said, err := s.Kubectl("", slices.Concat([]string{"delete", "--ignore-not-found", "--wait=false"}, whole)...); err != nil {
				t.Errorf("delete %s: %v: %s", whole[1], err, said)
			}
		})
		said, err := s.Kubectl("", slices.Concat([]string{"apply"}, whole)...)
		if err != nil && s.stamps {
			t.Errorf("apply %s: %v: %s", whole[1], err, said)
		}
		for line := range strings.Lines(said) {
			if !s.stamps && strings.Contains(line, "rror") && !strings.Contains(line, "spec.requestedBy must be the user of the request") {
				t.Errorf("apply %s: %s", whole[1], line)
			}
		}
	}
}
