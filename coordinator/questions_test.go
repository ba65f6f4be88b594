package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestAQuestionOrAWishThatCannotBeIsRefusedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := coordinatortest.Start(t, 1).Client()
		ctx := deadline(t, 20*time.Second)
		scope := &unisinkv1.Scope{Pipeline: "orders"}
		pipeline := &unisinkv1.Pipeline{Name: "orders", Members: []*unisinkv1.MemberSpec{{Name: "all", Source: true}}}
		put := func(d unisinkv1.DesiredState) error {
			pipeline.Desired = d
			_, err := cl.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: pipeline})
			return err
		}
		if err := put(99); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a pipeline that is wanted 99: %v", err)
		}
		if err := put(0); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			scope *unisinkv1.Scope
			g, n  uint64
			want  codes.Code
		}{
			"no scope":                 {nil, 1, 1, codes.InvalidArgument},
			"generation 0":             {scope, 0, 1, codes.InvalidArgument},
			"epoch 0":                  {scope, 1, 0, codes.InvalidArgument},
			"generation never opened":  {scope, 1, 1, codes.NotFound},
			"pipeline that is unknown": {&unisinkv1.Scope{Pipeline: "x"}, 1, 1, codes.NotFound},
		} {
			_, err := cl.Pipelines().EpochOutcome(ctx, &unisinkv1.EpochOutcomeRequest{Scope: c.scope, Epoch: &unisinkv1.Epoch{Generation: c.g, N: c.n}})
			if status.Code(err) != c.want {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
		for _, d := range []unisinkv1.DesiredState{0, 99} {
			_, err := cl.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{Meta: cl.NewMeta(), Name: "orders", Desired: d})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("wanted %d: %v", d, err)
			}
		}
	})
}
