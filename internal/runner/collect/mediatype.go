package collect

import (
	"bytes"
	"cmp"
	"path"
	"strings"
	"unicode/utf8"

	"toolcall.dev/operator/internal/result"
)

// images are how files begin that a client may show. The standard library's net/http is too large for this program.
var images = []struct{ start, mediaType string }{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
}

const (
	text   = "text/plain"
	binary = "application/octet-stream"
)

// textTypes and binaryTypes say what a file that is text, or isn't, is by the end of its name. No file of the image decides that.
var (
	textTypes = map[string]string{
		".css": "text/css", ".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".ipynb": "application/x-ipynb+json",
		".js": "text/javascript", ".json": "application/json", ".jsonl": "application/jsonl", ".md": "text/markdown", ".mjs": "text/javascript",
		".svg": "image/svg+xml", ".tsv": "text/tab-separated-values", ".xhtml": "application/xhtml+xml", ".xml": "application/xml", ".yaml": "application/yaml",
		".yml": "application/yaml",
	}
	binaryTypes = map[string]string{
		".docx": "application/vnd.openxmlformats", ".xlsx": "application/vnd.openxmlformats", ".pptx": "application/vnd.openxmlformats",
		".epub": "application/epub+zip", ".gz": "application/x-gzip", ".jar": "application/java-archive", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
		".npy": "application/x-npy", ".parquet": "application/vnd.apache.parquet", ".pdf": "application/pdf", ".tar": "application/x-tar",
		".wasm": "application/wasm", ".wav": "audio/wave", ".whl": "application/zip", ".xz": "application/x-xz", ".zip": "application/zip",
		".zst": "application/zstd",
	}
)

// mediaType is what a file looks like: an image by its first bytes, otherwise by the end of its name and whether it is text. A name alone
// makes nothing an image, and nothing else a text.
func mediaType(name string, start []byte) string {
	for _, image := range images {
		if bytes.HasPrefix(start, []byte(image.start)) {
			return image.mediaType
		}
	}
	extension := strings.ToLower(path.Ext(name))
	switch {
	case len(start) >= 14 && string(start[:4]) == "RIFF" && string(start[8:14]) == "WEBPVP":
		return "image/webp"
	case isText(start):
		return cmp.Or(textTypes[extension], text)
	default:
		return cmp.Or(binaryTypes[extension], binary)
	}
}

// isText says that the start of a file is UTF-8 without control characters that texts don't have.
func isText(start []byte) bool {
	start = result.TrimPartialEnd(start)
	return utf8.Valid(start) && !bytes.ContainsFunc(start, func(c rune) bool {
		return c < ' ' && !strings.ContainsRune("\t\n\f\r\x1b", c) || c == 0x7f
	})
}
