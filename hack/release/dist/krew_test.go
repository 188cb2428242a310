package dist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func krewed(t *testing.T, platforms ...string) (string, error) {
	t.Helper()
	r := &release{
		Options: &Options{Source: "../../..", Version: "v9.8.7", DownloadURL: "https://example.test/v9.8.7"},
		dir:     t.TempDir(), archives: map[string]string{},
	}
	for _, platform := range platforms {
		r.archives[platform] = strings.Repeat("a", 64-len(platform)) + platform
	}
	if err := r.krew(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "plugin", "toolcall.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

func TestKrewsManifestNamesEachArchiveAndItsSum(t *testing.T) {
	t.Parallel()
	text, err := krewed(t, "linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64")
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"} {
		for _, part := range []string{
			`uri: "https://example.test/v9.8.7/kubectl-toolcall_v9.8.7_` + platform + `.tar.gz"`,
			`sha256: "` + strings.Repeat("a", 64-len(platform)) + platform + `"`,
		} {
			if strings.Count(text, part) != 1 {
				t.Errorf("%s isn't there once:\n%s", part, text)
			}
		}
	}
}

func TestKrewsManifestIsNotMadeWithAPlatformMissing(t *testing.T) {
	t.Parallel()
	if _, err := krewed(t, "linux_amd64"); err == nil || !strings.Contains(err.Error(), "@SHA256_DARWIN_AMD64@") {
		t.Errorf("got %v", err)
	}
}
