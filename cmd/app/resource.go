package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) resource() *cli.Command {
	return group("resource", "what participants change: clusters, databases, directories",
		&cli.Command{
			Name: "list", Usage: "every resource: who uses it, who reaches it, what is outstanding in it",
			Description: "UNFINISHED are branches that are decided and not proven; DEBTS are closed generations in which nobody has yet looked for\n" +
				"what is dead; PREPARED is what the newest listing by a resolver found; each with the age of the oldest in parentheses.\n" +
				"REACHED BY are living members and resolvers that can finish something there; a resource that nobody reaches waits for the\n" +
				"next start of its pipeline. `-o wide` has everything on one line each, with identities and the time of the listing.\n" +
				"A resource is called what a resolver or a member says of it. A leader knows that as long as it leads, also when the member's\n" +
				"process is gone; a new one that has heard neither calls it by the names of its sinks and sources.",
			Action: a.resourceList,
		},
		a.resourceSweepCommand(),
	)
}

func (a *app) resourceList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, cl *participant.Client) error {
		r, err := cl.Resolution().ListResources(ctx, &unisinkv1.ListResourcesRequest{})
		if err != nil {
			return err
		}
		if c.String("output") == outputWide {
			return a.show(c, r, func() [][]string { return wideResourceRows(r.GetResources()) }, func() [][]string { return resolverRows(r.GetResolvers()) })
		}
		return a.show(c, r, func() [][]string { return wrapped(resourceRows(r.GetResources()), resourceWidths...) },
			func() [][]string { return wrapped(troubleRows(r.GetResources()), troubleWidths...) },
			func() [][]string { return wrapped(resolverRows(r.GetResolvers()), 20, 16, 46) })
	})
}

// Columns that are wrapped, so that tables fit into 120.
var (
	resourceWidths = []int{34, 22, 20}
	troubleWidths  = []int{34, 80}
)

// wideResourceRows have everything that is known.
func wideResourceRows(all []*unisinkv1.ResourceStatus) [][]string {
	rows := [][]string{{"RESOURCE", "USED BY", "HELD BY", "RESOLVERS", "UNFINISHED", "DEBTS", "PREPARED", "LISTED", "TROUBLE"}}
	for _, x := range all {
		rows = append(rows, []string{
			resourceText(x), dash(strings.Join(x.GetUsedBy(), ", ")), dash(strings.Join(x.GetHeldBy(), ", ")), dash(strings.Join(x.GetResolvers(), ", ")),
			counted(x.GetUnfinished(), x.GetOldestUnfinishedMs()), counted(x.GetDebts(), x.GetOldestDebtMs()), counted(x.GetPrepared(), x.GetOldestPreparedMs()),
			clock(x.GetListedAtMs()), dash(x.GetTrouble()),
		})
	}
	return rows
}

// resourceRows have what people look for first.
func resourceRows(all []*unisinkv1.ResourceStatus) [][]string {
	names := shortNames(all)
	rows := [][]string{{"RESOURCE", "USED BY", "REACHED BY", "UNFINISHED", "DEBTS", "PREPARED"}}
	for i, x := range all {
		rows = append(rows, []string{
			names[i], dash(strings.Join(x.GetUsedBy(), ", ")), dash(strings.Join(slices.Concat(x.GetHeldBy(), x.GetResolvers()), ", ")),
			aged(x.GetUnfinished(), x.GetOldestUnfinishedMs()), aged(x.GetDebts(), x.GetOldestDebtMs()), aged(x.GetPrepared(), x.GetOldestPreparedMs()),
		})
	}
	return rows
}

// troubleRows have what somebody tries in vain.
func troubleRows(all []*unisinkv1.ResourceStatus) [][]string {
	names := shortNames(all)
	rows := [][]string{{"RESOURCE", "TROUBLE"}}
	for i, x := range all {
		if x.GetTrouble() != "" {
			rows = append(rows, []string{names[i], x.GetTrouble()})
		}
	}
	return rows
}

// shortNames leave out identities where they are not needed to tell resources apart.
func shortNames(all []*unisinkv1.ResourceStatus) []string {
	names, times := make([]string, len(all)), map[string]int{}
	for i, x := range all {
		names[i] = resourceText(x)
		if kind := x.GetResource().GetKind(); x.GetText() != "" && kind != "" {
			names[i] = x.GetText() + " (" + kind + ")"
		}
		times[names[i]]++
	}
	for i, x := range all {
		if times[names[i]] > 1 {
			names[i] = resourceText(x)
		}
	}
	return names
}

// aged is a number with the age of the oldest: "3 (2m)".
func aged(n uint32, oldestMS int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", n, roughly(time.Duration(oldestMS)*time.Millisecond))
}

// tellDebts names the resources in which nobody has looked yet for what closed generations have left: a process that died
// before it voted leaves prepared work there of which the coordinator knows nothing. Where the last of them was stopped in
// order nothing of that kind is expected, and that is said instead.
func (a *app) tellDebts(ctx context.Context, cl *participant.Client) error {
	r, err := cl.Resolution().ListResources(ctx, &unisinkv1.ListResourcesRequest{})
	if status.Code(err) == codes.PermissionDenied {
		fmt.Fprintln(a.out, a.named("\nWhether dead processes have left more in the resources is for a viewer to see: `unisink resource list`."))
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(r.GetResources(), func(x *unisinkv1.ResourceStatus) bool { return x.GetDebts() > 0 }) {
		return nil
	}
	p, err := cl.Pipelines().ListPipelines(ctx, &unisinkv1.ListPipelinesRequest{})
	if err != nil {
		return err
	}
	inOrder := map[string]bool{} // scopes that owe, and whether they were stopped in order
	for _, x := range p.GetPipelines() {
		for _, s := range x.GetScopes() {
			if s.GetDebts() > 0 {
				inOrder[scopeText(s.GetScope())] = stoppedInOrder(s)
			}
		}
	}
	unlooked, quiet := owing(r.GetResources(), inOrder)
	a.tellNames("\nNobody has looked yet for what closed generations may have left prepared in these resources; the next start of\n"+
		"their pipeline does, or `unisink resolver`, and `unisink resource sweep FILE --dry-run` shows what there is:", unlooked)
	a.tellNames("\nWhat wrote to these resources was stopped in order, with its last epoch proven, and should have left nothing prepared.\n"+
		"The next start of their pipeline looks all the same, or `unisink resolver`:", quiet)
	return nil
}

// stoppedInOrder reports that the newest generation of a scope has ended with a final epoch that is proven: behind it nothing
// is written, and what older ones had left was looked for before it began.
func stoppedInOrder(s *unisinkv1.ScopeStatus) bool {
	return !s.GetOpen() && s.GetUnfinished() == 0 && slices.ContainsFunc(s.GetRestorePoints(), func(p *unisinkv1.KeptRestorePoint) bool {
		return p.GetFinal() && p.GetEpoch().GetGeneration() == s.GetGeneration() && p.GetEpoch().GetN() == s.GetFinal()
	})
}

// owing are the resources with debts: those in which something may have been left, and those of which all who owe were
// stopped in order.
func owing(all []*unisinkv1.ResourceStatus, inOrder map[string]bool) (unlooked, quiet []string) {
	for _, x := range all {
		if x.GetDebts() == 0 {
			continue
		}
		owes, ordered := false, true
		for _, user := range x.GetUsedBy() {
			scope, _, _ := strings.Cut(user, " ")
			if in, debts := inOrder[scope]; debts {
				owes, ordered = true, ordered && in
			}
		}
		if owes && ordered {
			quiet = append(quiet, resourceText(x))
		} else {
			unlooked = append(unlooked, resourceText(x))
		}
	}
	return unlooked, quiet
}

// tellNames names some resources below a text; none: it says nothing.
func (a *app) tellNames(text string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(a.out, a.named(text))
	for _, name := range names {
		fmt.Fprintln(a.out, "  "+plain(a.named(name)))
	}
}

func resourceText(x *unisinkv1.ResourceStatus) string {
	text := strings.TrimSpace(x.GetResource().GetKind() + " " + x.GetResource().GetIdentity()) // none before its first generation
	switch {
	case x.GetText() == "":
		return text
	case text == "": // no resolver has reached it yet
		return x.GetText()
	}
	return x.GetText() + " (" + text + ")"
}

// counted is a number with the age of the oldest: "3, oldest 2m0s".
func counted(n uint32, oldestMS int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, oldest %s", n, ago(time.Duration(oldestMS)*time.Millisecond))
}

func resolverRows(all []*unisinkv1.ReportRequest) [][]string {
	rows := [][]string{{"RESOLVER", "VERSION", "REACHES", "TRIES IN VAIN", "NEEDS A PERSON"}}
	for _, r := range all {
		reaches := make([]string, len(r.GetResources()))
		for i, x := range r.GetResources() {
			reaches[i] = x.GetText()
		}
		rows = append(rows, []string{r.GetResolver(), r.GetVersion(), dash(strings.Join(reaches, ", ")), fmt.Sprint(len(r.GetTroubles())), fmt.Sprint(len(r.GetInDoubt()))})
	}
	return rows
}
