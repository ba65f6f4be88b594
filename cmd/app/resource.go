package app

import (
	"context"
	"fmt"
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
			Description: "DEBTS are closed generations in which nobody has yet looked for what is dead; UNFINISHED are branches that are decided and\n" +
				"not proven; PREPARED is what the newest listing by a resolver (LISTED) found. A resource that no resolver of RESOLVERS\n" +
				"reaches waits for the next start of its pipeline.",
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
		return a.show(c, r, func() [][]string {
			rows := [][]string{{"RESOURCE", "USED BY", "HELD BY", "RESOLVERS", "UNFINISHED", "DEBTS", "PREPARED", "LISTED", "TROUBLE"}}
			for _, x := range r.GetResources() {
				rows = append(rows, []string{
					resourceText(x), dash(strings.Join(x.GetUsedBy(), ", ")), dash(strings.Join(x.GetHeldBy(), ", ")), dash(strings.Join(x.GetResolvers(), ", ")),
					counted(x.GetUnfinished(), x.GetOldestUnfinishedMs()), counted(x.GetDebts(), x.GetOldestDebtMs()), counted(x.GetPrepared(), x.GetOldestPreparedMs()),
					clock(x.GetListedAtMs()), dash(x.GetTrouble()),
				})
			}
			return rows
		}, func() [][]string { return resolverRows(r.GetResolvers()) })
	})
}

// tellDebts names the resources in which nobody has looked yet for what closed generations have left: a process that died
// before it voted leaves prepared work there of which the coordinator knows nothing.
func (a *app) tellDebts(ctx context.Context, cl *participant.Client) error {
	r, err := cl.Resolution().ListResources(ctx, &unisinkv1.ListResourcesRequest{})
	if status.Code(err) == codes.PermissionDenied {
		fmt.Fprintln(a.out, "\nWhether dead processes have left more in the resources is for a viewer to see: `unisink resource list`.")
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, x := range r.GetResources() {
		if x.GetDebts() > 0 {
			names = append(names, resourceText(x))
		}
	}
	if len(names) == 0 {
		return nil
	}
	fmt.Fprintln(a.out, "\nNobody has looked yet for what closed generations may have left prepared in these resources; the next start of\n"+
		"their pipeline does, or `unisink resolver`, and `unisink resource sweep FILE --dry-run` shows what there is:")
	for _, name := range names {
		fmt.Fprintln(a.out, "  "+plain(a.named(name)))
	}
	return nil
}

func resourceText(x *unisinkv1.ResourceStatus) string {
	text := strings.TrimSpace(x.GetResource().GetKind() + " " + x.GetResource().GetIdentity()) // none before its first generation
	if x.GetText() != "" {
		text = x.GetText() + " (" + text + ")"
	}
	return text
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
