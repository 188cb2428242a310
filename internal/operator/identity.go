package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
)

// How long a Secret that exists may take to appear in the pod: the kubelet looks about once a minute.
const (
	mountTimeout = 5 * time.Minute
	mountPoll    = time.Second
)

// +kubebuilder:rbac:groups="",namespace=toolcall-system,resources=secrets,verbs=create

// loadIdentity finds the identity that all replicas share. The operator may not read Secrets: it gets this one
// as a mounted volume. Where there is none yet, it makes one; of several replicas that try, the API server
// lets one succeed, and the others wait for the kubelet to show them what that one made.
func loadIdentity(ctx context.Context, o *Options, clients kubernetes.Interface, log logr.Logger) (*dispatch.Identity, error) {
	if identity, err := readIdentity(o.IdentityDir); err != nil || identity != nil {
		return identity, err
	}
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		return nil, err
	}
	secret, err := identitySecret(o, identity)
	if err != nil {
		return nil, err
	}
	isMade, err := awaitCreated(ctx, clients, secret, log)
	switch {
	case err != nil:
		return nil, err
	case isMade:
		log.Info("Made the identity that runners check the operator against", "secret", secret.Name)
		return identity, nil
	}
	log.Info("The identity was made a moment ago: waiting for the kubelet to mount it", "secret", secret.Name)
	return waitForIdentity(ctx, o)
}

// awaitCreated waits until the Secret is there, and says whether this replica made it. The right to create it may be installed at
// the same moment.
func awaitCreated(ctx context.Context, clients kubernetes.Interface, secret *corev1.Secret, log logr.Logger) (isMade bool, err error) {
	err = await(ctx, log, "the identity to be created", func(ctx context.Context) error {
		_, err := clients.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
		isMade = err == nil
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("create Secret %s: %w", secret.Name, err)
	}
	return isMade, nil
}

func waitForIdentity(ctx context.Context, o *Options) (*dispatch.Identity, error) {
	var identity *dispatch.Identity
	err := wait.PollUntilContextTimeout(ctx, mountPoll, mountTimeout, true, func(context.Context) (done bool, err error) {
		identity, err = readIdentity(o.IdentityDir)
		return identity != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for Secret %s to be mounted at %s: %w", identityName, o.IdentityDir, err)
	}
	return identity, nil
}

// readIdentity returns nil when nothing is mounted.
func readIdentity(dir string) (*dispatch.Identity, error) {
	cert, err := os.ReadFile(filepath.Join(dir, corev1.TLSCertKey))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the identity's certificate: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("read the identity's key: %w", err)
	}
	return dispatch.ParseIdentity(cert, key)
}

func identitySecret(o *Options, identity *dispatch.Identity) (*corev1.Secret, error) {
	cert, key, err := identity.Encode()
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      identityName,
			Labels:    map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Type:      corev1.SecretTypeTLS,
		Immutable: ptr.To(true),
		Data:      map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}, nil
}
