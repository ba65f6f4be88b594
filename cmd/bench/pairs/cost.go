package pairs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/stats"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Cost is what a transaction takes of the machine: on few cores, with many clients, it is what bounds them.
type Cost struct {
	// CPU of each kind of process, user and kernel, milliseconds: of the clients' process (pgbench, on the bare
	// side), of all coordinator nodes together, which run and are idle on the bare side, and of all of the server's processes.
	Client   float64 `json:"client_cpu_ms"`
	Nodes    float64 `json:"nodes_cpu_ms"`
	Postgres float64 `json:"postgres_cpu_ms"`
	// WAL is bytes of the server's log.
	WAL float64 `json:"wal_bytes"`
	// Entries of the nodes' log, each synced by every node; transactions share them.
	Entries float64 `json:"entries"`
}

// used is what the processes have used since they were started.
type used struct {
	self, nodes, postgres time.Duration
	wal                   int64
	entries               uint64 // written by the group since it was made
}

// used reads it.
func (l *lab) used(ctx context.Context) (u used, err error) {
	self, err := group.UsageOf(0)
	if err != nil {
		return u, err
	}
	u.self = self.CPU
	for _, n := range l.group.Nodes {
		of, err := group.UsageOf(n.Proc.PID())
		if err != nil {
			return u, fmt.Errorf("node %s: %w", n.ID, err)
		}
		u.nodes += of.CPU
	}
	if u.postgres, err = group.FamilyCPU(l.server.PID()); err != nil {
		return u, fmt.Errorf("PostgreSQL: %w", err)
	}
	text, err := l.server.Query(ctx, "postgres", "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint::text")
	if err != nil {
		return u, err
	}
	if u.wal, err = strconv.ParseInt(text, 10, 64); err != nil {
		return u, err
	}
	st, err := l.group.Client.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
	u.entries = st.GetAppliedIndex()
	return u, err
}

func (u used) since(began used) used {
	return used{u.self - began.self, u.nodes - began.nodes, u.postgres - began.postgres, u.wal - began.wal, u.entries - began.entries}
}

// per shares it among the transactions of a pass.
func (u used) per(p pass, bare bool) Cost {
	client := u.self
	if bare {
		client = p.client
	}
	n := float64(max(p.done, 1))
	ms := func(d time.Duration) float64 { return stats.Milliseconds(d) / n }
	return Cost{Client: ms(client), Nodes: ms(u.nodes), Postgres: ms(u.postgres), WAL: float64(u.wal) / n, Entries: float64(u.entries) / n}
}
