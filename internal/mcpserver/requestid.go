package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

// A request_id is the client's own name for a call or session. The object's name follows from it and from the requester, so
// every replica makes the same one, the API server lets one request of many create the object, and the others find it. The
// server keeps nothing: an id counts for as long as its object exists.

const (
	namedPrefix = namePrefix + "id-"
	// namedDigits is the length of the hash in a name, in hexadecimal digits: 128 bits.
	namedDigits = 32
)

// nameFor returns the name of the object that a requester's request_id stands for. Nobody else's id has it.
func nameFor(user, uid, kind, id string) string {
	// JSON keeps the parts apart, whatever characters they have.
	parts, _ := json.Marshal([]string{user, uid, kind, id})
	sum := sha256.Sum256(parts)
	return namedPrefix + hex.EncodeToString(sum[:])[:namedDigits]
}

// digestOf returns a hash of what a request asks for. It is the same however the client wrote the arguments.
func digestOf(spec any) (string, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the request: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// namedRequest is a request with a request_id.
type namedRequest struct {
	kind, id string
	// spec is what the client asked for, without what the server adds.
	spec any
}

// nameByID gives an object the name of a request_id, and notes what was asked for.
func nameByID(ctx context.Context, who *identity.Requester, r namedRequest, object client.Object) error {
	user, uid, err := who.Identify(ctx)
	if err != nil {
		return &notCreated{cause: fmt.Errorf("find out who you are, which a request_id needs: %w", err)}
	}
	digest, err := digestOf(r.spec)
	if err != nil {
		return &notCreated{cause: err}
	}
	object.SetName(nameFor(user, uid, r.kind, r.id))
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationRequestDigest] = digest
	object.SetAnnotations(annotations)
	return nil
}

// checkSame returns an error unless an existing object is the one that a request with a request_id would have created. Anybody who
// may create objects in the namespace can choose their names and annotations, but not who their requester is.
func checkSame(ctx context.Context, who *identity.Requester, found, wanted client.Object, by *v1alpha1.Requester) error {
	user, uid, err := who.Identify(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("find out who you are: %w", err)
	case by == nil || by.Username != user || by.UID != uid:
		return &failure{reason: reasonRequestIDConflict, message: fmt.Sprintf(
			"somebody else created %s, the name that this request_id stands for: use another request_id", found.GetName())}
	case found.GetAnnotations()[v1alpha1.AnnotationRequestDigest] != wanted.GetAnnotations()[v1alpha1.AnnotationRequestDigest]:
		conflict := &failure{reason: reasonRequestIDConflict, message: fmt.Sprintf(
			"this request_id was used before with other arguments, for %s, and nothing was run now: use another request_id, or send the same arguments", found.GetName())}
		if _, ok := found.(*v1alpha1.ToolSession); ok {
			conflict.session = found.GetName()
		} else {
			conflict.call = found.GetName()
		}
		return conflict
	default:
		return nil
	}
}

// adopt finds the call that an earlier request with the same request_id created, or an earlier try whose response was lost.
func adopt(ctx context.Context, who *identity.Requester, wanted *v1alpha1.ToolCall, named bool) (*v1alpha1.ToolCall, error) {
	found := &v1alpha1.ToolCall{}
	if err := who.Objects.Get(ctx, keyOf(wanted), found); err != nil {
		return nil, &unknownOutcome{call: keyOf(wanted), cause: fmt.Errorf("read the call: %w", err)}
	}
	if !named && found.Spec.RequestedBy == nil {
		// This cluster has no admission policy that records who creates calls.
		return found, nil
	}
	err := checkSame(ctx, who, found, wanted, found.Spec.RequestedBy)
	if err != nil && (!named || !isFailure(err)) {
		// Nobody else generates the name of a call without request_id: somebody put another call in its place.
		err = &unknownOutcome{call: keyOf(wanted), cause: err}
	}
	return found, err
}
