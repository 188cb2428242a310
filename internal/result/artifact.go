package result

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Bounds of what a call collected. Those of texts are in bytes of JSON, as the API has them.
const (
	MaxArtifacts        = 100
	MaxArtifactPath     = 256
	MaxArtifactBytes    = 1 << 30
	MaxMediaType        = 64
	MaxArtifactsMessage = 1 << 10
	// MaxArtifactPaths bounds the paths of all.
	MaxArtifactPaths = 12 << 10
)

// Artifacts are what a call collected.
type Artifacts struct {
	// Kept are the files that were kept.
	Kept ArtifactList `json:"kept,omitempty"`
	// Omitted counts those that weren't. Message says why; it is empty when all is as the call wants it.
	Omitted int64  `json:"omitted,omitempty"`
	Message string `json:"message,omitempty"`
}

// ArtifactList is a list of at most MaxArtifacts.
type ArtifactList = List[Artifact]

// Artifact is a file that was kept.
type Artifact struct {
	// Path is as the call's glob matched it.
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	// SHA256 is that of the bytes that were kept.
	SHA256    string `json:"sha256"`
	MediaType string `json:"mediaType"`
}

// ArtifactPathSize is how much a path that can name an artifact takes of MaxArtifactPaths; 0 for one that can't.
func ArtifactPathSize(path string) int {
	if path == "" || strings.ContainsRune(path, 0) || !utf8.ValidString(path) || !fitsJSON(path, MaxArtifactPath) {
		return 0
	}
	return sizeAsJSON(path)
}

// sizeAsJSON is how many bytes a text takes, as the API server writes it.
func sizeAsJSON(text string) int {
	raw, err := json.Marshal(text)
	if err != nil {
		return len(text) * len(`\u0000`)
	}
	return len(raw) - len(`""`)
}

func fitsJSON(text string, limit int) bool { return len(text) <= limit && sizeAsJSON(text) <= limit }

// artifactPaths are the paths of the artifacts before, with what they take together.
type artifactPaths struct {
	seen map[string]bool
	size int
}

// add says whether an artifact can be listed with those before, and adds it if it can.
func (p *artifactPaths) add(one *Artifact) bool {
	size := ArtifactPathSize(one.Path)
	switch {
	case size == 0, p.size+size > MaxArtifactPaths, p.seen[one.Path]:
		return false
	case one.Bytes < 0, one.Bytes > MaxArtifactBytes, !isHash(one.SHA256), len(one.MediaType) > MaxMediaType, !isMediaType(one.MediaType):
		return false
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[one.Path] = true
	p.size += size
	return true
}

// ArtifactsLost says of a call that its pod ended before anybody could read its artifacts.
func ArtifactsLost(count int64) *Artifacts {
	return &Artifacts{Omitted: count, Message: "The pod ended before the files that the call collected could be read."}
}

// ArtifactsMessage is the beginning of a text, in whole characters, that is short enough for Message.
func ArtifactsMessage(text string) string {
	const more = "..."
	text = strings.ToValidUTF8(text, "\uFFFD")
	if fitsJSON(text, MaxArtifactsMessage) {
		return text
	}
	cut := 0
	for i, room := 0, MaxArtifactsMessage-len(more); i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		if room -= sizeAsJSON(text[i : i+size]); room < 0 {
			break
		}
		i += size
		cut = i
	}
	return text[:cut] + more
}
