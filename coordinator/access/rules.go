package access

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// rule says who may call a method. Whoever has one of the roles may; a method without a rule is
// called by nobody.
type rule struct {
	roles []role
	// member: the members of the pipeline that the message is about, too.
	member bool
	// open: everybody, also without a certificate.
	open bool
	// known: whoever has a role at all, and other nodes. A node without a group, which knows no other
	// node yet, answers everybody whose certificate the authority has signed.
	known bool
	// epochs: an id that names an epoch is the operators' alone.
	epochs bool
}

// rules is the table of all methods.
var rules = map[string]rule{
	unisinkv1.Session_Attach_FullMethodName:   {member: true},
	unisinkv1.Session_Renew_FullMethodName:    {member: true},
	unisinkv1.Session_Ready_FullMethodName:    {member: true},
	unisinkv1.Session_Vote_FullMethodName:     {member: true},
	unisinkv1.Session_Decide_FullMethodName:   {member: true},
	unisinkv1.Session_Resolved_FullMethodName: {member: true},
	unisinkv1.Session_Leave_FullMethodName:    {member: true},

	unisinkv1.Pipelines_PutPipeline_FullMethodName:    {roles: []role{operator}},
	unisinkv1.Pipelines_DeletePipeline_FullMethodName: {roles: []role{operator}},
	unisinkv1.Pipelines_SetDesired_FullMethodName:     {roles: []role{operator}},
	unisinkv1.Pipelines_Resume_FullMethodName:         {roles: []role{operator}},
	unisinkv1.Pipelines_Rewind_FullMethodName:         {roles: []role{operator}},
	unisinkv1.Pipelines_Pin_FullMethodName:            {roles: []role{operator}},
	unisinkv1.Pipelines_GetPipeline_FullMethodName:    {roles: []role{viewer}, member: true},
	unisinkv1.Pipelines_ListPipelines_FullMethodName:  {roles: []role{viewer}},
	unisinkv1.Pipelines_ListEpochs_FullMethodName:     {roles: []role{viewer}, member: true},
	unisinkv1.Pipelines_GetEpoch_FullMethodName:       {roles: []role{viewer}, member: true},
	unisinkv1.Pipelines_EpochOutcome_FullMethodName:   {roles: []role{viewer}, member: true},
	unisinkv1.Pipelines_ProvenCut_FullMethodName:      {roles: []role{viewer}, member: true},

	unisinkv1.Transactions_Begin_FullMethodName:            {roles: []role{client}},
	unisinkv1.Transactions_Commit_FullMethodName:           {roles: []role{client}},
	unisinkv1.Transactions_Outcome_FullMethodName:          {roles: []role{client, resolver}},
	unisinkv1.Transactions_Abort_FullMethodName:            {roles: []role{client}, epochs: true},
	unisinkv1.Transactions_Resolve_FullMethodName:          {roles: []role{client, resolver}},
	unisinkv1.Transactions_ResolveAll_FullMethodName:       {roles: []role{client, resolver}},
	unisinkv1.Transactions_GetTransaction_FullMethodName:   {roles: []role{viewer, client}},
	unisinkv1.Transactions_ListTransactions_FullMethodName: {roles: []role{viewer, client}},

	unisinkv1.Resolution_ListDuties_FullMethodName:    {roles: []role{resolver}},
	unisinkv1.Resolution_Judge_FullMethodName:         {roles: []role{resolver}},
	unisinkv1.Resolution_Prove_FullMethodName:         {roles: []role{resolver}},
	unisinkv1.Resolution_PaySweep_FullMethodName:      {roles: []role{resolver}},
	unisinkv1.Resolution_Report_FullMethodName:        {roles: []role{resolver}},
	unisinkv1.Resolution_ListResources_FullMethodName: {roles: []role{viewer}},
	unisinkv1.Resolution_Force_FullMethodName:         {roles: []role{operator}},

	unisinkv1.Cluster_Status_FullMethodName:      {known: true},
	unisinkv1.Cluster_Bootstrap_FullMethodName:   {roles: []role{admin}},
	unisinkv1.Cluster_AddNode_FullMethodName:     {roles: []role{admin}},
	unisinkv1.Cluster_RemoveNode_FullMethodName:  {roles: []role{admin}},
	unisinkv1.Cluster_ReplaceNode_FullMethodName: {roles: []role{admin}},
	unisinkv1.Cluster_Transfer_FullMethodName:    {roles: []role{admin}},
	unisinkv1.Cluster_Backup_FullMethodName:      {roles: []role{admin}},

	unisinkv1.Cluster_RaiseFeatureLevel_FullMethodName: {roles: []role{admin}},

	unisinkv1.Audit_List_FullMethodName: {roles: []role{viewer}},

	unisinkv1.Events_Watch_FullMethodName: {roles: []role{viewer}, member: true},

	// Those who ask for health know no certificates, and learn nothing else.
	healthpb.Health_Check_FullMethodName: {open: true},
	healthpb.Health_Watch_FullMethodName: {open: true},
	healthpb.Health_List_FullMethodName:  {open: true},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {roles: []role{viewer}},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {roles: []role{viewer}},
}

// about is the pipeline that a message is about; "" if it names none.
func about(msg any) string {
	switch m := msg.(type) {
	case *unisinkv1.DecideRequest:
		return m.GetVote().GetScope().GetPipeline()
	case interface{ GetScope() *unisinkv1.Scope }:
		return m.GetScope().GetPipeline()
	case interface{ GetPipeline() string }:
		return m.GetPipeline()
	case *unisinkv1.GetPipelineRequest:
		return m.GetName()
	}
	return ""
}

// HasRule reports whether the table has a method, so that anybody at all may call it.
func HasRule(method string) bool {
	r, known := rules[method]
	return known && (r.open || r.known || r.member || len(r.roles) > 0)
}
