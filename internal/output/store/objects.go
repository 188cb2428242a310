package store

import (
	"fmt"
	"regexp"

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
		return "", fmt.Errorf("%.80q isn't a UID", string(uid))
	}
	return callsPrefix + string(uid) + "/", nil
}

// streamPrefix is before the names of a stream's objects.
func streamPrefix(key output.Key) (string, error) {
	prefix, err := callPrefix(key.UID)
	if err != nil {
		return "", err
	}
	switch {
	case key.Artifact != "" && key.Stream == "" && len(key.Artifact) <= maxArtifactPath:
		// A path may have any character.
		return prefix + "artifacts/" + hashOf([]byte(key.Artifact)) + "/", nil
	case key.Artifact == "" && (key.Stream == output.Stdout || key.Stream == output.Stderr):
		return prefix + string(key.Stream) + "/", nil
	default:
		return "", fmt.Errorf("%.80q isn't a stream: it must be %s, %s, or the path of an artifact", string(key.Stream)+key.Artifact, output.Stdout, output.Stderr)
	}
}

// maxArtifactPath bounds the path of an artifact, in bytes.
const maxArtifactPath = 4096

// indexName is the name of a stream's index behind its prefix.
const indexName = "index.json"

// name is the name of a part behind its stream's prefix. It says where the bytes are in the stream: two writers of one
// stream, an old leader and the new one, write the same bytes to the same name.
func (p part) name() string { return fmt.Sprintf("part-%013d-%07d", p.Offset, p.Size) }
