package install

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"toolcall.dev/operator/api/v1alpha1"
)

// snapshot is every object of the cluster, by resource, namespace and name.
type snapshot map[string]*metav1.PartialObjectMetadata

// passing come and go by themselves, and say nothing of what is installed.
var passing = map[string]bool{"events": true, "componentstatuses": true, "endpoints": true, "endpointslices": true, "ipaddresses": true}

// everything lists all that the API server has.
func (b *bench) everything() snapshot {
	b.t.Helper()
	lister, err := metadata.NewForConfig(b.config)
	b.must(err)
	server, err := discovery.NewDiscoveryClientForConfig(b.config)
	b.must(err)
	lists, err := server.ServerPreferredResources()
	b.must(err)
	all := snapshot{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		b.must(err)
		for _, resource := range list.APIResources {
			if passing[resource.Name] || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			objects, err := lister.Resource(version.WithResource(resource.Name)).List(b.t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // It went meanwhile.
			}
			b.must(err)
			for i := range objects.Items {
				o := &objects.Items[i]
				all[resource.Name+"."+version.Group+" "+o.Namespace+"/"+o.Name] = o
			}
		}
	}
	if len(all) < 50 {
		b.t.Fatalf("a cluster has more than these: %v", slices.Sorted(maps.Keys(all)))
	}
	return all
}

// traces are what in a cluster is still the operator's.
func (all snapshot) traces() (found []string) {
	for name, o := range all {
		owned := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
			return strings.HasPrefix(r.APIVersion, v1alpha1.GroupVersion.Group+"/")
		})
		named := strings.Contains(name, v1alpha1.GroupVersion.Group) || o.Namespace == system || o.Name == operator
		if owned || named || o.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy || o.Labels["app.kubernetes.io/name"] == operator {
			found = append(found, name)
		}
	}
	return found
}

// without waits until the cluster has no trace of the operator, and is that cluster. The API server and the
// garbage collector follow a deletion within seconds.
func (b *bench) without() (all snapshot) {
	b.t.Helper()
	b.settles("left of the operator", func() []string {
		all = b.everything()
		return all.traces()
	})
	return all
}

// settles waits until look finds nothing any more.
func (b *bench) settles(what string, look func() []string) {
	b.t.Helper()
	var found []string
	err := wait.PollUntilContextTimeout(b.t.Context(), time.Second, patience, true, func(context.Context) (bool, error) {
		found = look()
		return len(found) == 0, nil
	})
	if err != nil {
		slices.Sort(found)
		b.t.Fatalf("%s: %s", what, strings.Join(found, "\n"))
	}
}

// nothingSince waits until the cluster has no more than it had before.
func (b *bench) nothingSince(before snapshot) {
	b.t.Helper()
	b.settles("more than before", func() (more []string) {
		now := b.everything()
		for name := range now {
			if before[name] == nil {
				more = append(more, name)
			}
		}
		return append(more, now.traces()...)
	})
}
