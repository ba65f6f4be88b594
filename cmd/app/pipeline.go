package app

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) pipeline() *cli.Command {
	return group("pipeline", "show pipelines; stop, drain, start and rewind them; check their files",
		&cli.Command{
			Name: "list", Usage: "all pipelines and how they stand",
			Description: "IN DOUBT counts epochs: open are those whose barrier is ordered and that are not decided, unfinished those that are decided and not\n" +
				"proven everywhere. LAG is how many records the sources are behind. Exit code 11 if a scope is halted: a person must act.",
			Action: a.pipelineList,
		},
		&cli.Command{
			Name: "show", Usage: "one pipeline: scopes, members, what they wait for, restore points", ArgsUsage: "PIPELINE",
			Description: "Exit code 11 if a scope of it is halted: a person must act.",
			Action:      a.pipelineShow,
		},
		&cli.Command{Name: "start", Usage: "let a stopped pipeline run again, from where it stopped", ArgsUsage: "PIPELINE", Action: a.pipelineStart},
		&cli.Command{
			Name: "stop", Usage: "one last epoch, then stop; state and open windows are kept", ArgsUsage: "PIPELINE",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "drain", Usage: "the same as `pipeline drain`"},
				noWaitFlag(),
			},
			Action: a.pipelineStop,
		},
		&cli.Command{
			Name: "drain", Usage: "stop, and let open windows fire before the last epoch", ArgsUsage: "PIPELINE",
			Description: "What is not read yet stays unread. If the pipeline is started again, that is late for the windows\n" +
				"that have fired; `unisink pipeline rewind` to a restore point before the drain opens them again.",
			Flags:  []cli.Flag{noWaitFlag()},
			Action: a.pipelineDrain,
		},
		&cli.Command{
			Name: "resume", Usage: "let a halted scope go on, once its cause is gone", ArgsUsage: "PIPELINE[/SHARD]",
			Description: "`unisink pipeline list` says why it is halted. The processes that wait go on at once; none has to be restarted, unless its program was mended." +
				forExample("unisink pipeline resume orders --why 'the table has its column now'"),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "why", Usage: "`REASON`, which the log keeps; needed"},
				&cli.StringFlag{Name: "from", Usage: "kept `EPOCH` to go on from; by default the scope's own restore point"},
			},
			Action: a.pipelineResume,
		},
		&cli.Command{
			Name: "accept-loss", Usage: "let a scope that lost a decided branch go on, and let the loss be accepted", ArgsUsage: "PIPELINE[/SHARD]",
			Description: "Each branch that was decided, and is proven rolled back or cannot be told of any more, counts as resolved from then on, with who and why; then the scope is resumed.",
			Flags:       []cli.Flag{&cli.StringFlag{Name: "why", Usage: "`REASON`, which the log keeps; needed"}},
			Action:      a.pipelineAcceptLoss,
		},
		a.pipelineRewindCommand(),
		a.pipelinePinCommand(),
		&cli.Command{Name: "unpin", Usage: "let a pinned restore point go", ArgsUsage: "PIPELINE[/SHARD] EPOCH", Action: a.pipelineUnpin},
		&cli.Command{
			Name: "lint", Usage: "find every mistake in a specification, and touch nothing else", ArgsUsage: "FILE",
			Description: "Exit code 10 if there is a mistake.",
			Action:      a.pipelineLint,
		},
		&cli.Command{Name: "explain", Usage: "say what a specification does, step by step", ArgsUsage: "FILE", Action: a.pipelineExplain},
		&cli.Command{Name: "schema", Usage: "print the JSON schema of specifications, for editors", Action: a.pipelineSchema},
	)
}

func (a *app) pipelinePinCommand() *cli.Command {
	return &cli.Command{
		Name: "pin", Usage: "keep a restore point until it is unpinned", ArgsUsage: "PIPELINE[/SHARD] EPOCH",
		Description: "`unisink pipeline show` lists the restore points that are kept." + forExample("unisink pipeline pin orders 7.12"),
		Action:      a.pipelinePin,
	}
}

func noWaitFlag() cli.Flag {
	return &cli.BoolFlag{Name: "no-wait", Usage: "return once it is ordered, not once everything is proven"}
}

func (a *app) pipelineResume(c *cli.Context) error {
	text, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	if err := need(c, "why"); err != nil {
		return err
	}
	req := &unisinkv1.ResumeRequest{Why: c.String("why")}
	if req.Scope, err = parseScope(text); err != nil {
		return err
	}
	if from := c.String("from"); from != "" {
		if req.RestorePoint, err = parseEpoch(from); err != nil {
			return err
		}
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		req.Meta = cl.NewMeta()
		if _, err := cl.Pipelines().Resume(ctx, req); err != nil {
			return err
		}
		return a.show(c, map[string]string{"scope": scopeText(req.GetScope()), "resumed": req.GetWhy()}, func() [][]string {
			return [][]string{{"SCOPE", "RESUMED"}, {scopeText(req.GetScope()), req.GetWhy()}}
		})
	})
}

func (a *app) pipelineList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().ListPipelines(ctx, &unisinkv1.ListPipelinesRequest{})
		if err != nil {
			return err
		}
		var scopes []*unisinkv1.ScopeStatus
		for _, p := range r.GetPipelines() {
			scopes = append(scopes, p.GetScopes()...)
		}
		err = a.show(c, r, func() [][]string { return standRows(r.GetPipelines()) }, func() [][]string { return haltedRows(scopes) })
		return cmp.Or(err, haltedScopes(scopes))
	})
}

func standRows(all []*unisinkv1.GetPipelineResponse) [][]string {
	rows := [][]string{{"PIPELINE", "DESIRED", "SCOPE", "STATE", "GENERATION", "DECIDED", "IN DOUBT", "LAG"}}
	for _, p := range all {
		for _, s := range p.GetScopes() {
			state := scopeState(s)
			if s.GetHalted() != "" {
				state = "halted" // why stands whole below
			}
			rows = append(rows, []string{
				p.GetPipeline().GetName(), desiredWord(p.GetPipeline().GetDesired()), scopeText(s.GetScope()), cut(shortIDs(state), 72),
				fmt.Sprint(s.GetGeneration()), fmt.Sprintf("%d.%d", s.GetGeneration(), s.GetFinal()), inDoubt(s), lagText(s),
			})
		}
	}
	return rows
}

func (a *app) pipelineShow(c *cli.Context) error {
	name, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
		if err != nil {
			return err
		}
		err = a.show(c, r, func() [][]string { return memberRows(r.GetScopes()) }, func() [][]string { return haltedRows(r.GetScopes()) },
			func() [][]string { return restorePointRows(r.GetScopes()) })
		return cmp.Or(err, haltedScopes(r.GetScopes()))
	})
}

func memberRows(scopes []*unisinkv1.ScopeStatus) [][]string {
	rows := [][]string{{"SCOPE", "STATE", "RESTORE POINT", "MEMBER", "INSTANCE", "PHASE", "LEASE LEFT", "LAG", "WAITS FOR"}}
	for _, s := range scopes {
		state := scopeState(s)
		for _, m := range s.GetMembers() {
			waits := m.GetWaitingFor()
			if s.GetHalted() != "" {
				state, waits = "halted", strings.Replace(waits, s.GetHalted(), "…", 1) // why stands whole below
			}
			rows = append(rows, []string{
				scopeText(s.GetScope()), state, epochText(s.GetRestorePoint()), m.GetName(), dash(shorten(m.GetInstance())),
				dash(m.GetPhase()), leaseText(m.GetInstance(), m.GetLeaseLeftMs()), numberOrDash(m.GetLag()), dash(waits),
			})
		}
	}
	return rows
}

func (a *app) pipelineStart(c *cli.Context) error {
	name, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		// Before the start, which may soon have changed it.
		g, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
		if err != nil {
			return err
		}
		r, err := cl.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{
			Meta: cl.NewMeta(), Name: name, Desired: unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
		})
		if err != nil {
			return err
		}
		if err := a.showDesired(c, name, r.GetPipeline().GetDesired()); err != nil {
			return err
		}
		if slices.ContainsFunc(g.GetScopes(), (*unisinkv1.ScopeStatus).GetDrained) {
			a.note(c, "The pipeline was drained: what it reads from now on is late for the windows that have fired.")
		}
		for _, s := range g.GetScopes() {
			if s.GetHalted() != "" {
				return failf(CodeHuman, "scope %s is halted and does not run: %s; %s", scopeText(s.GetScope()), s.GetHalted(), whatToDo(s))
			}
		}
		return nil
	})
}

func (a *app) showDesired(c *cli.Context, name string, d unisinkv1.DesiredState) error {
	return a.show(c, map[string]string{"pipeline": name, "desired": desiredWord(d)}, func() [][]string {
		return [][]string{{"PIPELINE", "DESIRED"}, {name, desiredWord(d)}}
	})
}

// note is a sentence below a table.
func (a *app) note(c *cli.Context, text string) {
	if forPeople(c) {
		fmt.Fprintln(a.out, "\n"+plainLines(a.named(text)))
	}
}

func (a *app) pipelineStop(c *cli.Context) error { return a.end(c, c.Bool("drain")) }

func (a *app) pipelineDrain(c *cli.Context) error { return a.end(c, true) }

// end stops or drains a pipeline and waits until it has come to that.
func (a *app) end(c *cli.Context, drain bool) error {
	name, err := oneArg(c, "pipeline")
	if err != nil {
		return err
	}
	to := unisinkv1.DesiredState_DESIRED_STATE_STOPPING
	if drain {
		to = unisinkv1.DesiredState_DESIRED_STATE_DRAINING
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{Meta: cl.NewMeta(), Name: name, Desired: to})
		if err != nil {
			return err
		}
		desired := r.GetPipeline().GetDesired()
		for !c.Bool("no-wait") && desired != unisinkv1.DesiredState_DESIRED_STATE_STOPPED {
			select {
			case <-ctx.Done():
				return failf(CodeDeadline, "pipeline %s is told to stop, and had not finished within %s; `unisink pipeline show %s` says what it waits for", name, c.Duration("timeout"), name)
			case <-time.After(100 * time.Millisecond):
			}
			g, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
			if err != nil {
				return err
			}
			desired = g.GetPipeline().GetDesired()
		}
		if err := a.showDesired(c, name, desired); err != nil {
			return err
		}
		if drain && desired == unisinkv1.DesiredState_DESIRED_STATE_STOPPED {
			a.note(c, "Every open window has fired; if the pipeline is started again, what it reads then is late for them.")
		}
		return nil
	})
}

func scopeText(s *unisinkv1.Scope) string { return fmt.Sprintf("%s/%d", s.GetPipeline(), s.GetShard()) }

func epochText(e *unisinkv1.Epoch) string {
	if e == nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d", e.GetGeneration(), e.GetN())
}

func desiredWord(d unisinkv1.DesiredState) string { return enumWord(d.String(), "DESIRED_STATE_") }

// scopeState is one word for people: what the scope does, or why it does nothing.
func scopeState(s *unisinkv1.ScopeStatus) string {
	switch {
	case s.GetHalted() != "":
		return "halted: " + s.GetHalted()
	case s.GetOpen():
		for _, m := range s.GetMembers() {
			if m.GetPhase() != "running" {
				return "starting"
			}
		}
		return "running"
	case s.GetGeneration() == 0:
		return "never ran"
	default:
		return "closed: " + s.GetCause()
	}
}

func lagText(s *unisinkv1.ScopeStatus) string {
	lag := int64(-1)
	for _, m := range s.GetMembers() {
		lag = max(lag, m.GetLag())
	}
	return numberOrDash(lag)
}

func numberOrDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

var instanceID = regexp.MustCompile(`\b([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// shortIDs shortens the instances in a text as shorten does one, so that the text is not cut behind them.
func shortIDs(text string) string { return instanceID.ReplaceAllString(text, "$1") }

func shorten(instance string) string {
	if short, _, ok := strings.Cut(instance, "-"); ok {
		return short
	}
	return instance
}
