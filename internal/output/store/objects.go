package store

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// callsPrefix is before the objects of all calls.
const callsPrefix = "calls/"

// validUID has no character that means something in a path or a URL. Kubernetes makes UUIDs.
var validUID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// callPrefix is before the names of a call's objects, and of nothing else.
func callPrefix(uid types.UID) (string, error) {
	if !validUID.MatchString(string(uid)) {
		return "", fmt.Errorf("%.80q is no UID", string(uid))
	}
	return callsPrefix + string(uid) + "/", nil
}

// maxArtifactBytes is more than the path of an artifact has.
const maxArtifactBytes = 4096

// streamPrefix is before the names of the objects of a stream or an artifact. Nothing in an artifact's path means anything there:
// the hash of it is in the name, and the path itself in the index.
func streamPrefix(key output.Key) (string, error) {
	prefix, err := callPrefix(key.UID)
	if err != nil {
		return "", err
	}
	if key.Artifact != "" {
		if key.Stream != "" || len(key.Artifact) > maxArtifactBytes || !utf8.ValidString(key.Artifact) {
			return "", fmt.Errorf("%.80q is no artifact: it is of a stream, too long, or isn't UTF-8", key.Artifact)
		}
		return prefix + "artifact-" + hashOf([]byte(key.Artifact)) + "/", nil
	}
	if key.Stream != output.Stdout && key.Stream != output.Stderr {
		return "", fmt.Errorf("%.80q is no stream: it must be %s or %s", string(key.Stream), output.Stdout, output.Stderr)
	}
	return prefix + string(key.Stream) + "/", nil
}

// indexName is the name of a stream's index behind its prefix.
const indexName = "index.json"

// name is the name of a part behind its stream's prefix. It says where the bytes are in the stream: two writers of one
// stream, an old leader and the new one, write the same bytes to the same name.
func (p part) name() string { return fmt.Sprintf("part-%013d-%07d", p.Offset, p.Size) }
