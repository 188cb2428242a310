package operator

import (
	"context"
	"fmt"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/floor"
	"toolcall.dev/operator/test/bench/standalone"
)

// variant is one of the kinds whose floors are compared, and what was measured of it.
type variant struct {
	*floor.Variant
	alone, atOnce []float64
	took          time.Duration
	used          standalone.CPU
}

// besidePrefix begins the names of another checkout's policies.
const besidePrefix = "beside-"

// newVariants installs the variants and connects to each. The first is the kind that the server came with; the others are
// copies in groups of their own, so that all are there at the same time.
func (b *bench) newVariants(ctx context.Context) ([]*variant, error) {
	ours := v1alpha1.GroupVersion.Group
	kinds := []*floor.Variant{
		{Title: "as installed", Group: ours, Folder: ".", Policies: true},
		{Title: "without admission policies", Group: "unguarded." + ours, Folder: "."},
		{Title: "without admission policies and CEL rules", Group: "plain." + ours, Folder: ".", Stripped: true},
	}
	if b.beside != "" {
		kinds = append(kinds, &floor.Variant{Title: "as in " + b.beside, Group: "beside." + ours, Folder: b.beside, Policies: true, Prefix: besidePrefix})
	}
	var variants []*variant
	for _, kind := range kinds {
		if err := kind.Install(ctx, b.client, b.server.Conf, floorNamespace); err != nil {
			return nil, fmt.Errorf("variant %q: %w", kind.Title, err)
		}
		variants = append(variants, &variant{Variant: kind, used: standalone.CPU{}})
	}
	// The API server publishes what the new kinds look like, and that takes processor time.
	return variants, cluster.Pause(ctx, settleTime)
}
