package orders

import (
	"strings"
	"time"
)

// What the pipeline, its generator and its verification share.
const (
	Name = "orders"
	Text = "orders, summed by customer over 1 s windows, into a topic and a directory in one decision"
	// File is the specification, for messages; its text is examples.Orders.
	File        = "orders.yaml"
	SourceAlias = "in"
	TopicAlias  = "totals"
	FilesAlias  = "files"
	WindowSize  = time.Second
	MaxDisorder = 500 * time.Millisecond
	Partitions  = 4

	fieldCustomer = "customer"
	fieldCents    = "cents"
	fieldAt       = "at"
	fieldStart    = "window_start"
	fieldCount    = "count"
	fieldSum      = "sum_cents"
)

// Config says where the pipeline reads and writes.
type Config struct {
	Brokers []string
	// From and To are topics, Dir is a directory.
	From, To, Dir string
	// Bad and Late are the directories of dead letters and of late orders; default Dir with "-bad" and "-late".
	Bad, Late string
	// State is a directory for window state that does not fit into a vote; empty: none.
	State string
}

// Lookup answers what the specification asks of the environment.
func (c Config) Lookup(name string) (string, bool) {
	or := func(v, suffix string) string {
		if v == "" {
			return c.Dir + suffix
		}
		return v
	}
	v, ok := map[string]string{
		"UNISINK_BROKERS": strings.Join(c.Brokers, ","), "UNISINK_STATE": c.State,
		"ORDERS_FROM": c.From, "ORDERS_TO": c.To, "ORDERS_DIR": c.Dir, "ORDERS_BAD": or(c.Bad, "-bad"), "ORDERS_LATE": or(c.Late, "-late"),
	}[name]
	return v, ok
}
