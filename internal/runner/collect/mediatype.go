package collect

import (
	"bytes"
	"cmp"
	"path"
	"strings"
	"unicode/utf8"
)

// signatures are how files of a type begin. The types are those of the standard library's net/http, which is too large for this
// program.
var signatures = []struct {
	start     string
	mediaType string
}{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
	{"%PDF-", "application/pdf"},
	{"PK\x03\x04", zip},
	{"\x1f\x8b\x08", "application/x-gzip"},
	{"\x00asm", "application/wasm"},
	{"OggS\x00", "application/ogg"},
	{"ID3", "audio/mpeg"},
	{"wOFF", "font/woff"},
	{"wOF2", "font/woff2"},
}

const (
	zip    = "application/zip"
	text   = "text/plain"
	binary = "application/octet-stream"
)

// zipTypes, textTypes and binaryTypes say what a file that is a zip archive, text, or neither is by the end of its name. No
// file of the image decides that.
var (
	zipTypes = map[string]string{
		".docx": "application/vnd.openxmlformats", ".xlsx": "application/vnd.openxmlformats", ".pptx": "application/vnd.openxmlformats",
		".jar": "application/java-archive", ".epub": "application/epub+zip",
	}
	textTypes = map[string]string{
		".css": "text/css", ".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".ipynb": "application/x-ipynb+json",
		".js": "text/javascript", ".json": "application/json", ".jsonl": "application/jsonl", ".md": "text/markdown", ".mjs": "text/javascript",
		".svg": "image/svg+xml", ".tsv": "text/tab-separated-values", ".xhtml": "application/xhtml+xml", ".xml": "application/xml", ".yaml": "application/yaml",
		".yml": "application/yaml",
	}
	binaryTypes = map[string]string{
		".mp3": "audio/mpeg", ".npy": "application/x-npy", ".parquet": "application/vnd.apache.parquet", ".tar": "application/x-tar", ".xz": "application/x-xz",
		".zst": "application/zstd",
	}
)

// mediaType is what a file looks like: by its first bytes, and where they don't say it, by the end of its name too. A name alone
// makes no text an image, and nothing else a text.
func mediaType(name string, start []byte) string {
	extension := strings.ToLower(path.Ext(name))
	found := bySignature(start)
	switch {
	case found == zip:
		return cmp.Or(zipTypes[extension], zip)
	case found != "":
		return found
	case isText(start):
		return cmp.Or(textTypes[extension], text)
	default:
		return cmp.Or(binaryTypes[extension], binary)
	}
}

func bySignature(start []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(start, []byte(s.start)) {
			return s.mediaType
		}
	}
	switch {
	case len(start) >= 14 && string(start[:4]) == "RIFF" && string(start[8:14]) == "WEBPVP":
		return "image/webp"
	case len(start) >= 12 && string(start[:4]) == "RIFF" && string(start[8:12]) == "WAVE":
		return "audio/wave"
	case len(start) >= 12 && string(start[4:8]) == "ftyp":
		return "video/mp4"
	default:
		return ""
	}
}

// isText says that the start of a file is UTF-8 without control characters that texts don't have.
func isText(start []byte) bool {
	for len(start) > 0 {
		c, size := utf8.DecodeRune(start)
		switch {
		case c == utf8.RuneError && size == 1:
			// The last character may be cut.
			return !utf8.FullRune(start)
		case c < ' ' && !strings.ContainsRune("\t\n\f\r\x1b", c), c == 0x7f:
			return false
		}
		start = start[size:]
	}
	return true
}
