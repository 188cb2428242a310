package apicache

import (
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// IsRefused says that the API server will not take an object, however often it is sent.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) && FullQuota(err.Error()) == "" ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// quotaRefusal is what the API server says when an object doesn't fit into a ResourceQuota.
var quotaRefusal = regexp.MustCompile(`exceeded quota: (.+), requested: (.+), used: .+, limited: (.+)`)

// quotaUnknown is what it says as long as nobody has counted what a new ResourceQuota limits.
var quotaUnknown = regexp.MustCompile(`status unknown for quota: ([^,]+),`)

// FullQuota names the ResourceQuota of a refusal that has room again when others have ended, or when it is counted; empty when there
// is none. What is more than the whole quota never fits.
func FullQuota(refusal string) string {
	if unknown := quotaUnknown.FindStringSubmatch(refusal); unknown != nil {
		return fmt.Sprintf("ResourceQuota %q isn't counted yet", unknown[1])
	}
	found := quotaRefusal.FindStringSubmatch(refusal)
	if found == nil {
		return ""
	}
	limited := quantities(found[3])
	for name, requested := range quantities(found[2]) {
		if limit, has := limited[name]; !has || requested.Cmp(limit) > 0 {
			return ""
		}
	}
	return fmt.Sprintf("ResourceQuota %q has no room for %s (its limit: %s)", found[1], found[2], found[3])
}

// quantities reads "pods=1,requests.cpu=100m".
func quantities(text string) map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	for one := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		if quantity, err := resource.ParseQuantity(value); err == nil {
			all[name] = quantity
		}
	}
	return all
}
