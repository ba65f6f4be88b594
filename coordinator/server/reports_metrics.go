package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unisink/unisink/internal/obs"
)

// preparedAge shows, for each resource that a resolver has listed, how old the oldest thing is that is prepared in
// it: what a forgotten one holds, locks or readers, it holds for as long (L4).
var preparedAge = prometheus.NewDesc(obs.MetricPreparedAge,
	"Age of the oldest thing that is prepared in a resource, as resolvers told the leader.", []string{obs.LabelAdapter, obs.LabelResource}, nil)

// Describe implements prometheus.Collector.
func (r *reports) Describe(out chan<- *prometheus.Desc) { out <- preparedAge }

// Collect implements prometheus.Collector.
func (r *reports) Collect(out chan<- prometheus.Metric) {
	ages := map[resource]float64{}
	for _, q := range r.list(time.Now()) {
		for _, x := range q.GetResources() {
			if is := (resource{x.GetResource().GetKind(), x.GetResource().GetIdentity()}); is.identity != "" {
				ages[is] = max(ages[is], float64(x.GetOldestPreparedMs())/1000)
			}
		}
	}
	for is, age := range ages {
		out <- prometheus.MustNewConstMetric(preparedAge, prometheus.GaugeValue, age, is.kind, is.identity)
	}
}
