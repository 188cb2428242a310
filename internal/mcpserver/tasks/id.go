package tasks

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// secretBytes is the length of the random part of an id.
	secretBytes = 16
	// maxID bounds an id: a namespace, a name, a UID and the random part fit.
	maxID = 512
	// maxHashes is how many ids of one call are valid at the same time: repeated requests with one request_id get an id each.
	maxHashes = 8
)

// id identifies a task.
type id struct {
	key    types.NamespacedName
	uid    types.UID
	secret string
}

// newSecret returns the random part of an id.
func newSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// String is the id as clients get it. The name of a call can have dots, the other parts can't.
func (i id) String() string {
	return strings.Join([]string{i.key.Namespace, string(i.uid), i.secret, i.key.Name}, ".")
}

// parseID reads an id. Whether it is that of a task, only the call says.
func parseID(text string) (id, bool) {
	parts := strings.SplitN(text, ".", 4)
	if len(text) > maxID || len(parts) != 4 || len(validation.IsDNS1123Subdomain(parts[3])) > 0 {
		return id{}, false
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(secret) != secretBytes {
		return id{}, false
	}
	return id{key: types.NamespacedName{Namespace: parts[0], Name: parts[3]}, uid: types.UID(parts[1]), secret: parts[2]}, true
}

// hash is what the call has of the id.
func (i id) hash() string {
	sum := sha256.Sum256([]byte(i.secret))
	return hex.EncodeToString(sum[:])
}

// isOf reports whether the id is one that was made for the call.
func (i id) isOf(call *v1alpha1.ToolCall) bool {
	if call.UID != i.uid {
		return false
	}
	found := 0
	for _, hash := range hashesOf(call) {
		found |= subtle.ConstantTimeCompare([]byte(hash), []byte(i.hash()))
	}
	return found == 1
}

// hashesOf are the hashes of a call's ids, the newest first.
func hashesOf(call *v1alpha1.ToolCall) []string {
	if text := call.Annotations[v1alpha1.AnnotationTask]; text != "" {
		return strings.SplitN(text, ",", maxHashes+1)
	}
	return nil
}

// addTo makes the id one of the call's. The oldest ids give way.
func (i id) addTo(call *v1alpha1.ToolCall) {
	hashes := append([]string{i.hash()}, hashesOf(call)...)
	if call.Annotations == nil {
		call.Annotations = map[string]string{}
	}
	call.Annotations[v1alpha1.AnnotationTask] = strings.Join(hashes[:min(len(hashes), maxHashes)], ",")
}
