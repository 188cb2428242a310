package dist

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// needs are what packing a client starts, besides a shell.
var needs = map[string][]string{
	"python":     {"/usr/bin/python3", "-c", "import build, hatchling"},
	"typescript": {"npm", "--version"},
}

// The clients have the release's version, and the same source and version give the same bytes.
func TestClientsArePacked(t *testing.T) {
	t.Parallel()
	if os.Getenv("TOOLCALL_FULL") != "1" {
		t.Skip("packing needs npm and Python's build tools: make test-full runs it")
	}
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for language, want := range map[string][]string{
		"python": {"toolcall-9.8.7-py3-none-any.whl", "toolcall-9.8.7.tar.gz"},
		"typescript": {
			"toolcall-client-9.8.7.tgz", "toolcall-computesdk-9.8.7.tgz", "toolcall-deepagents-9.8.7.tgz", "toolcall-langchain-9.8.7.tgz",
			"toolcall-openai-agents-9.8.7.tgz",
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if said, err := exec.Command(needs[language][0], needs[language][1:]...).CombinedOutput(); err != nil {
				t.Fatalf("packing needs %q: %v: %s", needs[language], err, said)
			}
			var packed []map[string][]byte
			for range 2 {
				r := &release{Options: &Options{Source: source, Version: "v9.8.7", Clients: []string{language}, Say: t.Logf}, dir: t.TempDir()}
				if err := r.clients(t.Context()); err != nil {
					t.Fatal(err)
				}
				packed = append(packed, contents(t, filepath.Join(r.dir, "clients")))
			}
			var names []string
			for name, content := range packed[0] {
				names = append(names, name)
				if !bytes.Equal(content, packed[1][name]) {
					t.Errorf("%s has other bytes the second time", name)
				}
			}
			if slices.Sort(names); !slices.Equal(names, want) || len(packed[1]) != len(want) {
				t.Errorf("packed are %q, not %q", names, want)
			}
		})
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
