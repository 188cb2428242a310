package collect

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
)

func TestMediaTypesFollowFromContentFirst(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	_ = gzip.NewWriter(&zipped).Close()
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	for _, c := range []struct{ name, start, want string }{
		{"plot.png", png, "image/png"},
		{"plot.txt", png, "image/png"},
		{"plot.png", "text", "text/plain"},
		{"plot.png", "\x00\x01", "application/octet-stream"},
		{"page.html", "<html><script>", "text/html"},
		{"page", "<html><script>", "text/plain"},
		{"drawing.SVG", "<svg onload=x>", "image/svg+xml"},
		{"data.json", `{"a":1}`, "application/json"},
		{"data.csv", "a,b\n", "text/csv"},
		{"empty", "", "text/plain"},
		{"colours.log", "\x1b[31mred\x1b[0m\n", "text/plain"},
		{"latin1.txt", "caf\xe9 au lait", "application/octet-stream"},
		{"cut.txt", strings.Repeat("é", 255) + "x\xc3", "text/plain"},
		{"book.xlsx", "PK\x03\x04...", "application/vnd.openxmlformats"},
		{"x.whl", "PK\x03\x04...", "application/zip"},
		{"x.tar.gz", zipped.String(), "application/x-gzip"},
		{"weights.npy", "\x93NUMPY\x01", "application/x-npy"},
		{"photo", "\xff\xd8\xff\xe0", "image/jpeg"},
		{"photo", "RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"},
		{"film.mp4", "\x00\x00\x00\x20ftypmp42", "video/mp4"},
		{"film.txt", "\x00\x00\x00\x20ftypmp42", "application/octet-stream"},
	} {
		if got := mediaType(c.name, []byte(c.start)); got != c.want {
			t.Errorf("%s with %q: got %s, want %s", c.name, c.start, got, c.want)
		}
	}
}

// Where a signature says the type, it is the one that the standard library says, and an operator takes all of them.
func TestSignaturesAreThoseOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	all := []string{text, binary, "image/webp"}
	for _, s := range images {
		all = append(all, s.mediaType)
		start := s.start + strings.Repeat("\x00", 32)
		if got := http.DetectContentType([]byte(start)); got != s.mediaType {
			t.Errorf("%q is %s there, and %s here", s.start, got, s.mediaType)
		}
	}
	for _, table := range []map[string]string{textTypes, binaryTypes} {
		for _, mediaType := range table {
			all = append(all, mediaType)
		}
	}
	for _, mediaType := range all {
		o := result.Outcome{Reason: result.Completed, Started: true, ExitCode: result.Exit(0), Artifacts: &result.Artifacts{
			Kept: result.ArtifactList{{Path: "p", SHA256: strings.Repeat("0", 64), MediaType: mediaType}},
		}}
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", mediaType, err)
		}
	}
}
