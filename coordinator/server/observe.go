package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/internal/invariant"
	"github.com/unisink/unisink/internal/obs"
)

// metrics of the edge; what is in doubt is read from the last look of the finisher.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	refused *prometheus.CounterVec
	broken  prometheus.Counter
}

// Why a connection or a call is refused.
const (
	refusedHandshake   = "handshake"
	refusedConnections = "connections"
	refusedRole        = "role"
	refusedCertificate = "certificate"
)

func newMetrics(c Config) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: obs.MetricCalls, Help: "Calls answered, by method and status code.",
		}, []string{obs.LabelMethod, obs.LabelCode}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: obs.MetricCallLatency, Help: "Time to answer a unary call.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
		}, []string{obs.LabelMethod}),
	}
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: obs.MetricRefused, Help: "Connections and calls that were turned away at the client port, by cause.",
	}, []string{obs.LabelCause})
	for _, cause := range []string{refusedHandshake, refusedConnections, refusedRole, refusedCertificate} {
		m.refused.WithLabelValues(cause) // shown as 0
	}
	m.broken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: obs.MetricHeuristics, Help: "Branches whose resource broke its promise or cannot tell any more how they ended, as this node has learnt since it started.",
	})
	labelled := func(name, help string, labels prometheus.Labels, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read)
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return labelled(name, help, nil, read)
	}
	c.Registry.MustRegister(m.calls, m.seconds, m.refused, m.broken,
		gauge(obs.MetricUnresolved, "Decided branches that nobody has proven, as the leader sees it.", func() float64 { return float64(c.InDoubt().Unfinished) }),
		labelled(obs.MetricInDoubtAge, "Age of the oldest branch in doubt, as the leader sees it.", prometheus.Labels{obs.LabelState: "unfinished"}, func() float64 { return c.InDoubt().Oldest.Seconds() }),
		gauge(obs.MetricDebts, "Sweep debts unpaid, as the leader sees it.", func() float64 { return float64(c.InDoubt().Debts) }),
		gauge(obs.MetricLeader, "1 on the node that leads.", func() float64 {
			if c.Node.NodeStatus().State == stateLeader {
				return 1
			}
			return 0
		}),
		gauge(obs.MetricTerm, "Raft term.", func() float64 { return float64(c.Node.NodeStatus().Term) }),
		gauge(obs.MetricApplied, "Index of the last entry applied here.", func() float64 { return float64(c.Node.NodeStatus().AppliedIndex) }),
		gauge(obs.MetricApplyLag, "Entries in the log and not applied here.", func() float64 {
			st := c.Node.NodeStatus()
			return float64(st.LastIndex - min(st.AppliedIndex, st.LastIndex))
		}),
		gauge(obs.MetricPipelines, "Pipelines in the ledger.", func() (n float64) {
			c.Node.View(func(m *ledger.Machine) { n = float64(m.PipelineCount()) })
			return n
		}),
	)
	return m
}

// CountBrokenPromise counts a heuristic outcome.
func (s *Server) CountBrokenPromise() { s.metrics.broken.Inc() }

// answered counts a call by what it came to.
func (m *metrics) answered(method string, err error) {
	m.calls.WithLabelValues(method, status.Code(err).String()).Inc()
	switch reason, _ := grpcerr.Reason(err); reason {
	case grpcerr.NotAllowed:
		m.refused.WithLabelValues(refusedRole).Inc()
	case grpcerr.Distrusted:
		m.refused.WithLabelValues(refusedCertificate).Inc()
	}
}

func (m *metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	m.seconds.WithLabelValues(info.FullMethod).Observe(time.Since(start).Seconds())
	m.answered(info.FullMethod, err)
	return resp, err
}

func (m *metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(srv, ss)
	m.answered(info.FullMethod, err)
	return err
}

// recovered turns a panic in a handler into an answer and an alarm. A broken invariant goes on and
// stops the process: nothing that this node says can be relied on any longer.
func recovered(log *slog.Logger, method string, what any) error {
	if broken, ok := what.(invariant.Violation); ok {
		panic(broken)
	}
	log.Error("handler panicked; this is a bug", slog.String("method", method), slog.Any("panic", what), slog.String("stack", string(debug.Stack())))
	return grpcerr.New(codes.Internal, "", fmt.Sprintf("%s failed by a bug in the coordinator; its log says more", method), nil)
}

func recoverUnary(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = recovered(log, info.FullMethod, p)
			}
		}()
		return handler(ctx, req)
	}
}

func recoverStream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = recovered(log, info.FullMethod, p)
			}
		}()
		return handler(srv, ss)
	}
}

// Ready reports whether this node can serve: it belongs to a group and knows a leader.
func (s *Server) Ready() error {
	st := s.c.Node.NodeStatus()
	if !st.Bootstrapped {
		return fmt.Errorf("node %s is not bootstrapped", st.ID)
	}
	if id, _ := s.c.Node.Leader(); id == "" {
		return fmt.Errorf("node %s knows no leader", st.ID)
	}
	return nil
}

// SetServing sets what the gRPC health service answers.
func (s *Server) SetServing(ok bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		st = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", st)
}
