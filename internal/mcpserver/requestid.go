package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
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
func digestOf(spec any) string {
	raw, _ := json.Marshal(spec) // of types that always encode
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// partsOf returns the kind and the spec of a call or a session, and who created it.
func partsOf(object client.Object) (kind string, spec any, by *v1alpha1.Requester) {
	if session, ok := object.(*v1alpha1.ToolSession); ok {
		return "ToolSession", session.Spec, session.Spec.RequestedBy
	}
	call := object.(*v1alpha1.ToolCall)
	return "ToolCall", call.Spec, call.Spec.RequestedBy
}

// setName puts a call or a session, whose spec is as the client asked for, into the requester's namespace. Its name is generated, or that of a
// request_id; then an annotation notes what was asked for.
func setName(ctx context.Context, who *identity.Requester, object client.Object, id string) error {
	object.SetNamespace(who.Namespace)
	object.SetName(namePrefix + utilrand.String(nameLength))
	if id == "" {
		return nil
	}
	user, uid, err := who.Identify(ctx)
	if err != nil {
		return notCreated(fmt.Errorf("find out who you are, which a request_id needs: %w", err))
	}
	kind, spec, _ := partsOf(object)
	object.SetName(nameFor(user, uid, kind, id))
	annotations := map[string]string{v1alpha1.AnnotationRequestDigest: digestOf(spec)}
	maps.Copy(annotations, object.GetAnnotations())
	object.SetAnnotations(annotations)
	return nil
}

// checkSame returns an error unless an existing object is the one that a request would have created. Anybody who may create objects in
// the namespace can choose their names and annotations, but not who their requester is.
func checkSame(ctx context.Context, who *identity.Requester, found, wanted client.Object, by *v1alpha1.Requester) error {
	user, uid, err := who.Identify(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("find out who you are: %w", err)
	case by == nil || by.Username != user || by.UID != uid:
		return &failure{reason: reply.ReasonRequestIDConflict, message: fmt.Sprintf(
			"somebody else created %s, the name that this request_id stands for: use another request_id", found.GetName())}
	case found.GetAnnotations()[v1alpha1.AnnotationRequestDigest] == wanted.GetAnnotations()[v1alpha1.AnnotationRequestDigest]:
		return nil
	}
	conflict := &failure{reason: reply.ReasonRequestIDConflict, call: found.GetName(), message: fmt.Sprintf(
		"this request_id was used before with other arguments, for %s, and nothing was run now: use another request_id, or send the same arguments", found.GetName())}
	if _, ok := found.(*v1alpha1.ToolSession); ok {
		conflict.call, conflict.session = "", found.GetName()
	}
	return conflict
}

// object is a call or a session.
type object[T any] interface {
	*T
	client.Object
}

// adopt finds the object that an earlier request with the same request_id created, or an earlier try whose response was lost.
func adopt[T any, O object[T]](ctx context.Context, who *identity.Requester, wanted O, named bool) (O, error) {
	ctx, end := context.WithTimeout(ctx, createTimeout)
	defer end()
	found := O(new(T))
	if err := who.Objects.Get(ctx, client.ObjectKeyFromObject(wanted), found); err != nil {
		return nil, fmt.Errorf("read %s: %w", wanted.GetName(), err)
	}
	_, _, by := partsOf(found)
	if !named && by == nil {
		// This cluster has no admission policy that records who creates objects.
		return found, nil
	}
	err := checkSame(ctx, who, found, wanted, by)
	if err != nil && !named {
		// Nobody else generates its name: somebody put another object in its place.
		err = fmt.Errorf("%s is another one: %s", wanted.GetName(), err.Error())
	}
	return found, err
}

// createOrAdopt creates an object, or finds the one that has its request_id. It tries again when a response is lost: nobody else generates
// its name. It doesn't stop when the request is cancelled meanwhile, so that what was created can be ended. earlier reports that an earlier
// request created the object. If the error isn't a failure, the object may be there.
func createOrAdopt[T any, O object[T]](
	ctx context.Context, who *identity.Requester, wanted O, named bool,
) (created O, earlier bool, err error) {
	ctx = context.WithoutCancel(ctx)
	var lost error
	for try := range createTries {
		if try > 0 {
			time.Sleep(createRetry)
		}
		attempt, end := context.WithTimeout(ctx, createTimeout)
		attempt, unsent := follow.Unsent(attempt)
		created = wanted.DeepCopyObject().(O)
		err = who.Objects.Create(attempt, created)
		end()
		switch {
		case err == nil:
			return created, false, nil
		case apierrors.IsAlreadyExists(err) && (named || lost != nil):
			created, err = adopt(ctx, who, wanted, named)
			return created, lost == nil, err
		case isResponseLost(err) && !unsent(err):
			lost = err
		}
		if !isResponseLost(err) && !isBusy(err) {
			break
		}
	}
	switch {
	case lost == nil:
		err = notCreated(err)
	case !isResponseLost(err):
		// A refusal says nothing of an earlier request.
		err = fmt.Errorf("%w (and then: %s)", lost, err.Error())
	}
	return nil, false, err
}
