package obs

// Metric names. A name ends in its unit, a counter in "_total". The comment gives the type
// and the labels; a label's values are few and known (no ids, no epochs, no member instance).
const (
	// The four numbers that the first dashboard shows.

	// MetricTxns counts decided transactions. Labels: kind (epoch, hand), outcome.
	MetricTxns = "unisink_transactions_total"
	// MetricInDoubtAge is a gauge: age of the oldest branch in doubt, 0 when there is none.
	// Labels: state (undecided, unfinished).
	MetricInDoubtAge = "unisink_in_doubt_age_seconds"
	// MetricVoteLatency is a histogram from barrier order to vote. Labels: adapter.
	MetricVoteLatency = "unisink_vote_latency_seconds"
	// MetricApplyLag is a gauge: log entries known to be committed and not yet applied here.
	MetricApplyLag = "unisink_apply_lag_entries"

	// The replicated log.

	// MetricLeader is a gauge: 1 on the node that leads, else 0.
	MetricLeader = "unisink_leader_ratio"
	// MetricTerm is a gauge: the Raft term this node is in.
	MetricTerm = "unisink_term_number"
	// MetricApplied is a gauge: the index of the last entry applied here.
	MetricApplied = "unisink_applied_index_number"
	// MetricCommands counts ledger commands applied. Labels: command, result (applied, repeated, refused).
	MetricCommands = "unisink_commands_total"
	// MetricEntryCommands is a histogram: commands that shared one log entry.
	MetricEntryCommands = "unisink_entry_commands_count"
	// MetricProposeLatency is a histogram from Propose to its applied result, on the leader.
	MetricProposeLatency = "unisink_propose_latency_seconds"
	// MetricSyncs counts disk syncs of the log store.
	MetricSyncs = "unisink_log_syncs_total"

	// The edge.

	// MetricCalls counts calls answered. Labels: method, code.
	MetricCalls = "unisink_calls_total"
	// MetricCallLatency is a histogram of unary calls. Labels: method.
	MetricCallLatency = "unisink_call_latency_seconds"
	// MetricRefused counts connections and calls that were turned away at the client port, since this node started.
	// Labels: cause (handshake: it failed; connections: too many without a certificate; role: none for the call, or no
	// certificate; certificate: not trusted any more).
	MetricRefused = "unisink_refused_total"
	// MetricPipelines is a gauge: pipelines in the ledger.
	MetricPipelines = "unisink_pipelines_count"

	// Scopes and members.

	// MetricScopes is a gauge. Labels: state (open, closed, halted).
	MetricScopes = "unisink_scopes_count"
	// MetricMembers is a gauge: members attached to this leader.
	MetricMembers = "unisink_members_count"
	// MetricGenerations counts generations opened. Labels: cause.
	MetricGenerations = "unisink_generations_total"
	// MetricRoundLatency is a histogram from barrier order to the applied decision.
	MetricRoundLatency = "unisink_round_latency_seconds"
	// MetricEpochsPending is a gauge: epochs open or decided and not proven, over all scopes.
	MetricEpochsPending = "unisink_epochs_pending_count"

	// Finishing.

	// MetricUnresolved is a gauge: branches decided and not proven.
	MetricUnresolved = "unisink_branches_unfinished_count"
	// MetricDebts is a gauge: sweep debts not paid.
	MetricDebts = "unisink_sweep_debts_count"
	// MetricPreparedAge is a gauge: age of the oldest thing that a resolver's listing shows prepared, 0 when there is
	// none, as resolvers told the leader. Labels: adapter, resource (its identity).
	MetricPreparedAge = "unisink_prepared_age_seconds"
	// MetricHeuristics counts branches whose resource broke its promise or cannot tell any more how they ended, as this node has
	// learnt since it started.
	MetricHeuristics = "unisink_heuristics_total"
	// MetricFinishes counts tries to finish a branch. Labels: adapter, by (participant, resolver), result.
	MetricFinishes = "unisink_finishes_total"

	// Processors.

	// MetricRecordsIn counts records read. Labels: pipeline, source.
	MetricRecordsIn = "unisink_records_in_total"
	// MetricRecordsOut counts records written to sinks. Labels: pipeline, sink.
	MetricRecordsOut = "unisink_records_out_total"
	// MetricRecordsLate counts records behind the watermark. Labels: pipeline.
	MetricRecordsLate = "unisink_records_late_total"
	// MetricSourceLag is a gauge: records not yet read. Labels: pipeline, source.
	MetricSourceLag = "unisink_source_lag_records"
	// MetricWatermarkLag is a gauge: wall clock minus watermark. Labels: pipeline.
	MetricWatermarkLag = "unisink_watermark_lag_seconds"
)

// Label names, for the metrics above.
const (
	LabelMethod   = "method"
	LabelCode     = "code"
	LabelKind     = "kind"
	LabelOutcome  = "outcome"
	LabelState    = "state"
	LabelAdapter  = "adapter"
	LabelResource = "resource"
	LabelCommand  = "command"
	LabelResult   = "result"
	LabelCause    = "cause"
	LabelBy       = "by"
	LabelPipeline = "pipeline"
	LabelSource   = "source"
	LabelSink     = "sink"
)

// Metrics returns every metric name of unisink, so that a test can check that what a
// dashboard names exists. The slice is the caller's own.
func Metrics() []string {
	return []string{
		MetricTxns, MetricInDoubtAge, MetricVoteLatency, MetricApplyLag,
		MetricLeader, MetricTerm, MetricApplied, MetricCommands, MetricEntryCommands,
		MetricProposeLatency, MetricSyncs,
		MetricCalls, MetricCallLatency, MetricRefused, MetricPipelines,
		MetricScopes, MetricMembers, MetricGenerations, MetricRoundLatency, MetricEpochsPending,
		MetricUnresolved, MetricDebts, MetricPreparedAge, MetricHeuristics, MetricFinishes,
		MetricRecordsIn, MetricRecordsOut, MetricRecordsLate, MetricSourceLag, MetricWatermarkLag,
	}
}
