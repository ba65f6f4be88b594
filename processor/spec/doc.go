// Package spec turns a pipeline that is written down in YAML, with expressions in CEL, into one that runs.
//
//	pipeline: orders
//	source:
//	  name: in
//	  kafka: {brokers: "${UNISINK_BROKERS}", topics: [orders]}
//	  event_time: rec.at
//	  disorder: 500ms
//	where: rec.cents > 0
//	key: rec.customer
//	window:
//	  tumbling: 1s
//	  aggregate: {count: count(), sum_cents: sum(rec.cents)}
//	on_error: {dead_letter: bad}
//	late: too-late
//	sinks:
//	  - {name: totals, kafka: {brokers: "${UNISINK_BROKERS}", topic: order-totals}}
//	  - {name: files, file: {dir: out}}
//	  - {name: bad, file: {dir: bad}}
//	  - {name: too-late, file: {dir: late}}
//
// Every mistake is told with the line it stands in. Secrets are named, never written.
package spec
