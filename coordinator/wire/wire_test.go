package wire

import (
	"reflect"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// fill sets every exported field of v to something that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int64, reflect.Int32:
		v.SetInt(7)
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(7)
	case reflect.Uint8:
		v.SetUint(1) // enumerations and bytes
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("cannot fill a %s", v.Kind())
	}
}

func filled[T any](t *testing.T) T {
	t.Helper()
	var v T
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func same[T any](t *testing.T, want, got T) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%T did not survive:\nwant %+v\ngot  %+v", want, want, got)
	}
}

func TestEveryFieldSurvivesTheWire(t *testing.T) {
	scope := filled[ledger.ScopeID](t)
	same(t, scope, Scope(FromScope(scope)))
	epoch := filled[ledger.Epoch](t)
	same(t, epoch, Epoch(FromEpoch(epoch)))
	handle := filled[ledger.Handle](t)
	same(t, handle, Handle(FromHandle(handle)))
	positions := filled[[]ledger.Position](t)
	same(t, positions, Positions(FromPositions(positions)))
	parts := filled[[]ledger.StatePart](t)
	same(t, parts, Parts(FromParts(parts)))
	proof := filled[ledger.Proof](t)
	same(t, proof, Proof(FromProof(proof)))
	pipeline := filled[ledger.Pipeline](t)
	pipeline.LastRequest = "" // the ledger's own
	same(t, pipeline, Pipeline(FromPipeline(pipeline)))
}

func TestDesiredStatesAndOutcomesAreComplete(t *testing.T) {
	for d := ledger.Running; d <= ledger.Stopped; d++ {
		same(t, d, Desired(FromDesired(d)))
	}
	for o := ledger.Pending; o <= ledger.Aborted; o++ {
		if FromOutcome(o) == unisinkv1.Outcome_OUTCOME_UNSPECIFIED {
			t.Errorf("outcome %d has no form on the wire", o)
		}
	}
}

func TestWhatIsMissingIsZero(t *testing.T) {
	same(t, ledger.ScopeID{}, Scope(nil))
	same(t, ledger.Epoch{}, Epoch(nil))
	same(t, ledger.Handle{}, Handle(nil))
	same(t, ledger.Vote{Member: "m", Instance: "i"}, Vote("m", "i", nil))
	if FromEpoch(ledger.Epoch{}) != nil || FromProof(ledger.Proof{}) != nil {
		t.Error("nothing became something on the wire")
	}
}

func TestEveryRefusalHasAReason(t *testing.T) {
	for r := ledger.NotFound; r <= ledger.Unsupported; r++ {
		err := Refusal(ledger.Result{Refusal: r, Text: "why", RetryAt: 7})
		reason, meta := grpcerr.Reason(err)
		if reason == "" || meta[grpcerr.MetaRetryAt] != "7" {
			t.Errorf("refusal %d: %v", r, err)
		}
	}
	if err := Refusal(ledger.Result{}); err != nil {
		t.Errorf("what was applied is refused: %v", err)
	}
}
