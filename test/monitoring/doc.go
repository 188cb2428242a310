// Package monitoring tests the alerts and the dashboard of config/monitoring with Prometheus itself: promtool runs the alerts
// over series that are made up, and a server scrapes an operator that works against an API server, and answers what the
// dashboard asks.
//
// hack/test-programs.sh fetches Prometheus. The tests need KUBEBUILDER_ASSETS, and are skipped without it.
package monitoring
