package metrics

import (
	"k8s.io/apimachinery/pkg/types"
)

var (
	poolCreated = kept(counters("toolcall_pool_pods_created_total", withEnvironment(),
		"Pods that were created to refill an environment's warm pool."))
	poolFailed = kept(counters("toolcall_pool_pods_failed_total", withEnvironment(),
		"Pods of an environment's warm pool that were deleted because they did not start, or that the API server refused."))
)

// CountPoolCreated counts a pod that was created for an environment's warm pool.
func CountPoolCreated(name types.NamespacedName) {
	known.count(name, func(namespace, environment string) { poolCreated.WithLabelValues(namespace, environment).Inc() })
}

// CountPoolFailed counts a pod of an environment's warm pool that didn't start.
func CountPoolFailed(name types.NamespacedName) {
	known.count(name, func(namespace, environment string) { poolFailed.WithLabelValues(namespace, environment).Inc() })
}
