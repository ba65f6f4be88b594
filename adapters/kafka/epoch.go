package kafka

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// EpochHeader is the header that every record of a sink carries unless its settings say otherwise:
// the epoch that it belongs to, as "7.12". Readers who want whole epochs only go by it.
const EpochHeader = "unisink-epoch"

// NoEpochHeader as a sink's EpochHeader leaves the header out.
const NoEpochHeader = "-"

// EpochOf reads the epoch of a record from its headers; false if it carries none that can be read. Of
// several the last counts: the sink puts its own behind what the record brought along.
func EpochOf(r *stream.Record) (generation, n uint64, ok bool) {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key != EpochHeader {
			continue
		}
		g, e, found := strings.Cut(string(h.Value), ".")
		generation, err1 := strconv.ParseUint(g, 10, 64)
		n, err2 := strconv.ParseUint(e, 10, 64)
		return generation, n, found && err1 == nil && err2 == nil
	}
	return 0, 0, false
}

// stampOf makes the headers that records of a branch carry: one slice for all of them. Transactions
// by hand have no epoch.
func stampOf(header string, n participant.BranchName) []kgo.RecordHeader {
	if header == NoEpochHeader || n.Txn != "" {
		return nil
	}
	if header == "" {
		header = EpochHeader
	}
	value := strconv.AppendUint(nil, n.Generation, 10)
	value = strconv.AppendUint(append(value, '.'), n.N, 10)
	stamp := []kgo.RecordHeader{{Key: header, Value: value}}
	return stamp[:1:1]
}
