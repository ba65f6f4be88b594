package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) pipelineRewindCommand() *cli.Command {
	return &cli.Command{
		Name: "rewind", Usage: "set a stopped or halted scope back to a kept restore point", ArgsUsage: "PIPELINE[/SHARD]",
		Description: "Positions and state go back to the restore point, and the next start goes on from there. What was\n" +
			"decided after it stays in the sinks, and is written again: without --yes nothing is done, and what\n" +
			"it would mean for each sink is shown. `unisink pipeline show` lists the restore points." +
			forExample("unisink pipeline rewind orders --to 7.12", "unisink pipeline rewind orders --to 7.12 --why 'wrong prices since noon' --yes"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "kept `EPOCH` to go back to, like 7.12"},
			&cli.StringFlag{Name: "why", Usage: "`REASON`, which the log keeps; needed with --yes"},
			&cli.BoolFlag{Name: "yes", Usage: "do it; otherwise it is only shown"},
		},
		Action: a.pipelineRewind,
	}
}

// rewinding is what a rewind means, and whether it was made.
type rewinding struct {
	Scope string `json:"scope"`
	From  string `json:"from"`
	To    string `json:"to"`
	// DecidedAt is when the restore point was decided, Unix milliseconds.
	DecidedAt int64 `json:"decided_at_ms"`
	// Newest is the newest decided epoch: what was written after To and up to it is written again.
	Newest    string     `json:"newest_decided"`
	Positions []movement `json:"positions"`
	Sinks     []meaning  `json:"sinks"`
	Done      bool       `json:"done"`
}

// movement of a source.
type movement struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	From     int64  `json:"from"`
	To       int64  `json:"to"`
}

// meaning of a rewind for a sink.
type meaning struct {
	Member   string `json:"member"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Means    string `json:"means"`
}

func (a *app) pipelineRewind(c *cli.Context) error {
	text, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	wanted := []string{"to"}
	if c.Bool("yes") {
		wanted = append(wanted, "why")
	}
	if err := need(c, wanted...); err != nil {
		return err
	}
	scope, err := parseScope(text)
	if err != nil {
		return err
	}
	to, err := parseEpoch(c.String("to"))
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		plan, st, err := planRewind(ctx, cl.Pipelines(), scope, to)
		if err != nil {
			return err
		}
		if c.Bool("yes") {
			req := &unisinkv1.RewindRequest{Meta: cl.NewMeta(), Scope: scope, RestorePoint: to, Why: c.String("why")}
			if _, err := cl.Pipelines().Rewind(ctx, req); err != nil {
				return err
			}
			plan.Done = true
		}
		if err := a.show(c, plan, func() [][]string { return plan.rows() }); err != nil {
			return err
		}
		a.note(c, plan.next(st))
		return nil
	})
}

// planRewind says what a rewind means, or why it cannot be.
func planRewind(ctx context.Context, pl unisinkv1.PipelinesClient, scope *unisinkv1.Scope, to *unisinkv1.Epoch) (*rewinding, *unisinkv1.ScopeStatus, error) {
	g, err := pl.GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: scope.GetPipeline()})
	if err != nil {
		return nil, nil, err
	}
	name := scopeText(scope)
	if scope.GetShard() >= uint32(len(g.GetScopes())) {
		return nil, nil, failf(CodeNotFound, "there is no scope %s; pipeline %s has %d", name, scope.GetPipeline(), len(g.GetScopes()))
	}
	st := g.GetScopes()[scope.GetShard()]
	if st.GetOpen() {
		return nil, nil, failf(CodeRefused, "scope %s is running (generation %d is open); `unisink pipeline stop %s` first", name, st.GetGeneration(), scope.GetPipeline())
	}
	var point *unisinkv1.KeptRestorePoint
	for _, p := range st.GetRestorePoints() {
		if epochText(p.GetEpoch()) == epochText(to) {
			point = p
		}
	}
	if point == nil {
		return nil, nil, failf(CodeNotFound, "scope %s keeps no restore point %s; %s", name, epochText(to), keptText(st))
	}
	newest, err := pl.ListEpochs(ctx, &unisinkv1.ListEpochsRequest{Scope: scope, Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	plan := &rewinding{
		Scope: name, From: epochText(st.GetRestorePoint()), To: epochText(to), DecidedAt: point.GetDecidedAtMs(),
		Newest: epochText(to), Positions: []movement{}, Sinks: []meaning{},
	}
	for _, e := range newest.GetEpochs() {
		plan.Newest = epochText(e.GetEpoch())
	}
	if plan.Positions, err = movements(ctx, pl, scope, st.GetRestorePoint(), to); err != nil {
		return nil, nil, err
	}
	for _, m := range g.GetPipeline().GetMembers() {
		for _, r := range m.GetResources() {
			plan.Sinks = append(plan.Sinks, meaning{
				Member: m.GetName(), Resource: r.GetName(), Kind: r.GetKind(), Means: meansFor(r.GetKind(), plan.To, plan.Newest),
			})
		}
	}
	return plan, st, nil
}

// movements says how far each source goes back.
func movements(ctx context.Context, pl unisinkv1.PipelinesClient, scope *unisinkv1.Scope, from, to *unisinkv1.Epoch) ([]movement, error) {
	read := func(e *unisinkv1.Epoch) ([]*unisinkv1.Position, error) {
		r, err := pl.GetEpoch(ctx, &unisinkv1.GetEpochRequest{Scope: scope, Epoch: e})
		return r.GetEpoch().GetPositions(), err
	}
	now, err := read(from)
	if err != nil {
		return nil, err
	}
	then, err := read(to)
	if err != nil {
		return nil, err
	}
	type split struct{ resource, id string }
	target := map[split]int64{}
	for _, p := range then {
		target[split{p.GetResource(), p.GetSplit()}] = p.GetOffset()
	}
	out := []movement{}
	for _, p := range now {
		// What has no position at the restore point was not read yet, and is begun anew.
		out = append(out, movement{p.GetResource(), p.GetSplit(), p.GetOffset(), target[split{p.GetResource(), p.GetSplit()}]})
	}
	return out, nil
}

// meansFor says what becomes of a sink's output.
func meansFor(kind, to, newest string) string {
	if to == newest {
		return "nothing was decided after " + to + ": nothing is written again"
	}
	between := fmt.Sprintf("after %s up to %s", to, newest)
	switch kind {
	case kafka.Kind:
		return fmt.Sprintf("the records of epochs %s stay in the topic and are written again; the header %s of each record tells the old ones from the new", between, kafka.EpochHeader)
	case file.Kind:
		return fmt.Sprintf("the manifests of epochs %s stay, with the files they name, and new ones are written; each manifest names its epoch", between)
	default:
		return fmt.Sprintf("what epochs %s committed stays, and is written again", between)
	}
}

func (r *rewinding) rows() [][]string {
	rows := [][]string{{"WHAT", "WHO", "MEANS"}}
	rows = append(rows,
		[]string{"scope", r.Scope, fmt.Sprintf("from %s back to %s, decided %s", r.From, r.To, time.UnixMilli(r.DecidedAt).UTC().Format("2006-01-02 15:04:05 UTC"))},
		[]string{"state", r.Scope, "windows and aggregates are what they were at " + r.To},
	)
	for _, p := range r.Positions {
		rows = append(rows, []string{"position", p.Resource + " " + p.Split, fmt.Sprintf("%d -> %d", p.From, p.To)})
	}
	for _, s := range r.Sinks {
		rows = append(rows, []string{"sink " + s.Kind, s.Member + "/" + s.Resource, s.Means})
	}
	return rows
}

// next says what was done and what comes next.
func (r *rewinding) next(st *unisinkv1.ScopeStatus) string {
	name, _, _ := strings.Cut(r.Scope, "/")
	switch {
	case !r.Done:
		return fmt.Sprintf("Nothing was done. `unisink pipeline rewind %s --to %s --why … --yes` does it.", r.Scope, r.To)
	case st.GetHalted() != "":
		return fmt.Sprintf("Done. The scope is still halted (%s); `unisink pipeline resume %s --why …` lets it go on.", st.GetHalted(), r.Scope)
	default:
		return fmt.Sprintf("Done. `unisink pipeline start %s` lets it run from there.", name)
	}
}

// keptText lists the restore points of a scope, newest first.
func keptText(st *unisinkv1.ScopeStatus) string {
	points := st.GetRestorePoints()
	if len(points) == 0 {
		return "it has none"
	}
	out := make([]string, 0, len(points))
	for i := range points {
		p := points[len(points)-1-i]
		out = append(out, fmt.Sprintf("%s (%s old)", epochText(p.GetEpoch()), ago(time.Duration(p.GetAgeMs())*time.Millisecond)))
	}
	return "it keeps " + strings.Join(out, ", ")
}

// restorePointRows is the second table of `pipeline show`.
func restorePointRows(scopes []*unisinkv1.ScopeStatus) [][]string {
	rows := [][]string{{"SCOPE", "RESTORE POINT", "AGE", ""}}
	for _, s := range scopes {
		for i := range s.GetRestorePoints() {
			p := s.GetRestorePoints()[len(s.GetRestorePoints())-1-i]
			var notes []string
			for _, n := range []struct {
				is   bool
				text string
			}{{p.GetCurrent(), "the next start"}, {p.GetFinal(), "final"}, {p.GetPinned(), "pinned"}} {
				if n.is {
					notes = append(notes, n.text)
				}
			}
			rows = append(rows, []string{
				scopeText(s.GetScope()), epochText(p.GetEpoch()), ago(time.Duration(p.GetAgeMs()) * time.Millisecond), strings.Join(notes, ", "),
			})
		}
	}
	return rows
}

func (a *app) pipelinePin(c *cli.Context) error { return a.pin(c, "pin", false) }

func (a *app) pipelineUnpin(c *cli.Context) error { return a.pin(c, "unpin", true) }

// pin keeps a restore point, or lets it go.
func (a *app) pin(c *cli.Context, verb string, unpin bool) error {
	if c.NArg() != 2 {
		return usagef("name the pipeline and the restore point: `unisink pipeline %s orders 7.12`", verb)
	}
	scope, err := parseScope(c.Args().Get(0))
	if err != nil {
		return err
	}
	epoch, err := parseEpoch(c.Args().Get(1))
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		req := &unisinkv1.PinRequest{Meta: cl.NewMeta(), Scope: scope, RestorePoint: epoch, Unpin: unpin}
		if _, err := cl.Pipelines().Pin(ctx, req); err != nil {
			return err
		}
		out := map[string]any{"scope": scopeText(scope), "restore_point": epochText(epoch), "pinned": !unpin}
		return a.show(c, out, func() [][]string {
			return [][]string{{"SCOPE", "RESTORE POINT", "PINNED"}, {scopeText(scope), epochText(epoch), fmt.Sprint(!unpin)}}
		})
	})
}
