package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/internal/finding"
	"github.com/unisink/unisink/participant"
)

// right is an operation that a request needs.
type right struct {
	operation kmsg.ACLOperation
	requests  string
	bad       Severity
	without   string
}

// allowed judges rights by the set of operations that a broker says are allowed.
func allowed(subject string, operations int32, rights []right) []Finding {
	var out []Finding
	for _, r := range rights {
		f := Finding{Subject: subject, Setting: "right " + r.operation.String() + " for " + r.requests, Wanted: "allowed"}
		if operations == math.MinInt32 {
			out = append(out, finding.Unknown(subject, f.Setting, f.Wanted, errors.New("the brokers do not tell")))
			continue
		}
		f.Found, f.Why = "denied", r.without
		if operations&(1<<r.operation) != 0 {
			f.Found = "allowed"
		}
		out = append(out, finding.Judged(f.Found == "allowed", r.bad, f))
	}
	return out
}

// topicRights are those of the requests about a topic.
func topicRights(subject string, u topicUse, operations int32) []Finding {
	var rights []right
	if u.read {
		rights = append(rights, right{kmsg.ACLOperationRead, "Fetch", Wrong, "the topic cannot be read"})
	}
	if u.written {
		rights = append(rights,
			right{kmsg.ACLOperationWrite, "Produce", Wrong, "the topic cannot be written"},
			right{kmsg.ACLOperationRead, "DescribeProducers", Wrong, "whether a commit has reached every partition cannot be seen, so none can be proven"},
			right{kmsg.ACLOperationDescribeConfigs, "DescribeConfigs", Warning, "the topic's retention is not known, and no deadline is counted for it"},
		)
	}
	if u.name == offsetsTopic {
		rights = append(rights, right{kmsg.ACLOperationRead, "TxnOffsetCommit and DescribeProducers", Warning, "another topic has to carry the witnesses; see the sink's witness topic"})
	}
	return allowed(subject, operations, rights)
}

// clusterRights are those of the requests about the cluster.
func (d *doctor) clusterRights(ctx context.Context) []Finding {
	rights := []right{
		{kmsg.ACLOperationDescribeConfigs, "DescribeConfigs of brokers", Note, "transaction.max.timeout.ms is not known, and Kafka's default is taken"},
		{kmsg.ACLOperationAlter, "WriteTxnMarkers", Note, "a torn commit can be seen but not mended, and an operator has to"},
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, d.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return []Finding{finding.Unknown(theCluster, "rights", "allowed", err)}
	}
	operations := resp.ClusterAuthorizedOperations
	if operations != math.MinInt32 && operations&(1<<kmsg.ACLOperationClusterAction) != 0 {
		operations |= 1 << kmsg.ACLOperationAlter // either will do
	}
	return allowed(theCluster, operations, rights)
}

// identityRights are those of the requests about transactional ids and groups with names of ours.
func (d *doctor) identityRights(ctx context.Context) []Finding {
	if d.cfg.Namespace == "" {
		return []Finding{finding.Unknown("transactional ids and groups", "rights", "allowed", errors.New("their names begin with the coordinators' namespace, which was not given (--namespace)"))}
	}
	name := participant.BranchName{Namespace: participant.Namespace{Name: d.cfg.Namespace}, Pipeline: "doctor", Member: "main", Resource: "probe"}
	out := d.idRights(ctx, name.String())
	return append(out, d.groupRights(ctx, groupOf(name))...)
}

// idRights asks for an id that nobody uses, and asks to end its transaction, which it does not have: the
// brokers judge the right first, and change nothing.
func (d *doctor) idRights(ctx context.Context, id string) []Finding {
	subject := "transactional ids " + strings.SplitN(id, ".", 2)[0] + ".*"
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{id}
	see := Finding{
		Subject: subject, Setting: "right DESCRIBE for DescribeTransactions and ListTransactions", Wanted: "allowed",
		Why: "nothing can be proven, and nothing that was left behind is found",
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch = id, 0, 0
	use := Finding{
		Subject: subject, Setting: "right WRITE for InitProducerId, TxnOffsetCommit and EndTxn", Wanted: "allowed", Why: "no transaction can be begun or ended",
	}
	var out []Finding
	dresp, err := describe.RequestWith(ctx, d.cl)
	if err == nil && len(dresp.TransactionStates) == 1 {
		err = kerr.ErrorForCode(dresp.TransactionStates[0].ErrorCode)
	}
	out = append(out, tried(see, err, kerr.TransactionalIDAuthorizationFailed, kerr.TransactionalIDNotFound))
	eresp, err := end.RequestWith(ctx, d.cl)
	if err == nil {
		err = kerr.ErrorForCode(eresp.ErrorCode)
	}
	return append(out, tried(use, err, kerr.TransactionalIDAuthorizationFailed, kerr.InvalidProducerIDMapping))
}

// tried judges a right by the answer to a request that needs it.
func tried(f Finding, err error, denied, harmless error) Finding {
	switch {
	case errors.Is(err, denied):
		f.Found = "denied"
		return finding.Judged(false, Wrong, f)
	case err == nil || errors.Is(err, harmless):
		f.Found = "allowed"
		return finding.Judged(true, Wrong, f)
	}
	return finding.Unknown(f.Subject, f.Setting, f.Wanted, err)
}

// groupRights asks what is allowed with a group that nobody uses.
func (d *doctor) groupRights(ctx context.Context, group string) []Finding {
	subject := "groups " + strings.Join(strings.SplitN(group, ".", 3)[:2], ".") + ".*"
	rights := []right{{kmsg.ACLOperationRead, "TxnOffsetCommit and OffsetFetch", Wrong, "commits leave no witness, and no generation can be fenced"}}
	// Newer versions answer that there is no such group, and nothing else.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.DescribeGroups), 5)
	cl, err := d.at.client(kgo.MaxVersions(versions))
	if err != nil {
		return []Finding{finding.Unknown(subject, "rights", "allowed", err)}
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{group}, true
	resp, err := req.RequestWith(ctx, cl)
	if err == nil && len(resp.Groups) != 1 {
		err = fmt.Errorf("%d groups were described", len(resp.Groups))
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return allowed(subject, 0, rights)
	case err != nil:
		return []Finding{finding.Unknown(subject, "right READ for TxnOffsetCommit and OffsetFetch", "allowed", err)}
	}
	return allowed(subject, resp.Groups[0].AuthorizedOperations, rights)
}
