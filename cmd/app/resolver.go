package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/resolver"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/spec/form"
)

func (a *app) resolver() *cli.Command {
	return &cli.Command{
		Name: "resolver", Usage: "finish what dead processes have left", ArgsUsage: "FILE",
		Description: "FILE names the resources that it reaches, as sinks of a specification are written:\n\n" +
			"  resources:\n" +
			"    - kafka: {brokers: k1:9092}\n" +
			"    - file: {dir: /var/lib/totals}\n" +
			"      name: totals\n\n" +
			"It finishes decided branches whose process is gone, sweeps after closed generations, and lists each resource\n" +
			"once a minute for what was prepared too late. A name is what transactions run by hand call the resource. Several\n" +
			"resolvers may run at once; `unisink resource list` shows what they reach.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", EnvVars: []string{"UNISINK_RESOLVER_NAME"}, Usage: "`NAME` of this resolver in what operators see; default host and process id"},
			&cli.DurationFlag{Name: "sweep-interval", EnvVars: []string{"UNISINK_SWEEP_INTERVAL"}, Usage: "`TIME` between two listings of a resource; default what the coordinator says (1m)"},
		},
		Action: a.runResolver,
	}
}

func (a *app) runResolver(c *cli.Context) error {
	file, err := oneArg(c, "file that lists the resources")
	if err != nil {
		return err
	}
	if d := c.Duration("sweep-interval"); d > 0 && d < time.Second {
		return usagef("--sweep-interval %s is too short: each listing asks the resource and the coordinator; a second is the least, 1m is usual", d)
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	reach, err := a.readReach(c.Context, file, log)
	if err != nil {
		return err
	}
	secure, err := clientTLS(c)
	if err != nil {
		return errors.Join(err, reach.close())
	}
	client := participant.ClientConfig{Coordinators: coordinators(c), TLSFrom: secure}
	if err := reach.run(c.Context, log, client, resolver.Config{Name: c.String("name"), SweepInterval: c.Duration("sweep-interval")}); err != nil {
		err = withCode(CodeUsage, err)
		return errors.Join(err, reach.close())
	}
	return reach.close()
}

// reach is what a resolver's file names.
type reach struct {
	resources []resolver.Resource
}

func (r *reach) close() error {
	var errs []error
	for _, x := range r.resources {
		errs = append(errs, x.Finisher.Close())
	}
	return errors.Join(errs...)
}

// run resolves until ctx ends. An error is one of the settings.
func (r *reach) run(ctx context.Context, log *slog.Logger, client participant.ClientConfig, cfg resolver.Config) (err error) {
	client.Logger, client.Actor = log, "resolver"
	if cfg.Name != "" {
		client.Actor += " " + cfg.Name
	}
	cl, err := participant.NewClient(client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	cfg.Client, cfg.Resources, cfg.Version, cfg.Logger = cl, r.resources, version, log
	x, err := resolver.New(cfg)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "resolving", obs.Count(len(r.resources)))
	return x.Run(ctx)
}

// readReach reads a resolver's file and makes the finishers; it connects to nothing. Every mistake is told at once.
func (a *app) readReach(ctx context.Context, file string, log *slog.Logger) (*reach, error) {
	text, err := readSpec(file)
	if err != nil {
		return nil, err
	}
	root, mistakes := form.Load(file, text)
	if len(mistakes) > 0 {
		return nil, mistakes.Err()
	}
	rd := reachReader{Reader: form.Reader{File: file}, app: a, env: spec.Env{Logger: log, Lookup: os.LookupEnv}, names: map[string]string{}}
	out := &reach{}
	rd.read(ctx, root, out)
	if err := rd.Mistakes.Err(); err != nil {
		return nil, errors.Join(err, out.close())
	}
	return out, nil
}

type reachReader struct {
	form.Reader
	app   *app
	env   spec.Env
	names map[string]string // where each name stands
}

func (r *reachReader) read(ctx context.Context, root *form.Node, out *reach) {
	f := r.Fields(root, "", []string{"resources"}, nil)
	f.Miss("resources", "the list of what is reached")
	list := f.Has["resources"]
	if list == nil {
		return
	}
	if list.Kind != form.Sequence {
		r.Wrong(list.At, "resources", "a list belongs here, and this is %s; write - kafka: {brokers: ...}", list.Kind)
		return
	}
	if len(list.Items) == 0 {
		r.Wrong(list.At, "resources", "it is empty; name at least one resource")
	}
	for i, n := range list.Items {
		r.resource(ctx, n, fmt.Sprintf("resources[%d]", i), out)
	}
}

// resource reads one entry: a kind with its settings, and perhaps a name.
func (r *reachReader) resource(ctx context.Context, n *form.Node, path string, out *reach) {
	var kind, settings *form.Node
	before := len(r.Mistakes)
	kinds := r.kinds()
	f := r.Fields(n, path, append([]string{"name"}, kinds...), func(key, _ *form.Node) bool {
		if r.app.knows(key.Value) {
			r.Wrong(key.At, path, "resolvers cannot finish what is in %s; they reach %s", key.Value, strings.Join(kinds, ", "))
			return true
		}
		return false
	})
	name := f.Text("name")
	r.Name(name, form.Under(path, "name"), 32)
	r.once(name, path)
	if n.Kind != form.Mapping {
		return
	}
	for i, k := range n.Keys {
		if !slices.Contains(kinds, k.Value) {
			continue
		}
		if kind != nil {
			r.Wrong(k.At, path, "%s stands beside %s; each resource is an entry of its own", k.Value, kind.Value)
			return
		}
		kind, settings = k, n.Items[i]
	}
	if kind == nil {
		if len(r.Mistakes) == before {
			r.Wrong(n.At, path, "it is not said what it is: %s", strings.Join(kinds, " or "))
		}
		return
	}
	under := form.Under(path, kind.Value)
	for _, x := range r.app.adapters {
		if x.Kind != kind.Value {
			continue
		}
		s := form.NewSettings(r.File, kind, settings, under, r.env.Lookup)
		finisher, err := x.Finisher(ctx, r.env, s)
		var found form.Mistakes
		switch {
		case errors.As(err, &found):
			r.Mistakes = append(r.Mistakes, found...)
		case err != nil:
			r.Wrong(kind.At, under, "%s", err)
		default:
			out.resources = append(out.resources, resolver.Resource{Name: name.Value, Finisher: finisher, Text: kind.Value + " " + s.Show()})
		}
	}
}

// once refuses a name that two resources have: what was announced under it and is not in the one would be taken for never
// prepared while the other holds it.
func (r *reachReader) once(name form.Text, path string) {
	switch first, taken := r.names[name.Value]; {
	case name.Value == "":
	case taken:
		r.Wrong(name.At, form.Under(path, "name"), "%s is called %q already; each resource has a name of its own, the one that transactions by hand call it", first, name.Value)
	default:
		r.names[name.Value] = path
	}
}

// kinds are those that resolvers can finish.
func (r *reachReader) kinds() []string {
	var out []string
	for _, x := range r.app.adapters {
		if x.Finisher != nil {
			out = append(out, x.Kind)
		}
	}
	return out
}

func (a *app) knows(kind string) bool {
	return slices.ContainsFunc(a.adapters, func(x Adapter) bool { return x.Kind == kind })
}

// resolveWhileLeading makes a node run the resolver of a file for as long as it leads, so that the file's credentials
// are in use once in the group. It speaks with the group as any client does: by --ca, --cert and --key if they are
// given, else by the node's own certificate, which has the role resolver.
func (a *app) resolveWhileLeading(c *cli.Context, cfg *coordinator.Config) (*reach, error) {
	file := c.String("resolver")
	if file == "" {
		return &reach{}, nil
	}
	r, err := a.readReach(c.Context, file, cfg.Logger)
	if err != nil {
		return nil, err
	}
	secure, err := nodeClientTLS(c, cfg)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	address := cfg.ClientAdvertise
	if address == "" {
		address = cfg.ClientBind
	}
	client := participant.ClientConfig{Coordinators: []string{address}, TLSFrom: secure}
	last := make(chan error, 1) // what the resolver of the last term ended with
	last <- nil
	cfg.Leading = func(ctx context.Context) error {
		select {
		case err := <-last:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
		go func() { last <- r.run(ctx, cfg.Logger, client, resolver.Config{Name: "node " + cfg.NodeID}) }()
		select {
		case err := <-last:
			last <- nil
			return err
		case <-ctx.Done():
		}
		grace := time.NewTimer(hungFor)
		defer grace.Stop()
		select {
		case err := <-last:
			last <- nil
			return err
		case <-grace.C: // the next term waits for it
			cfg.Logger.WarnContext(ctx, "a resource hangs, and the end of leading does not wait for it")
			return nil
		}
	}
	return r, nil
}

// hungFor is how long the end of leading waits for a call of a resource that hears nothing: of a disk that hangs.
const hungFor = time.Second

func nodeClientTLS(c *cli.Context, cfg *coordinator.Config) (func() *tls.Config, error) {
	if cfg.ClientTLS == nil || c.String("ca") != "" {
		return clientTLS(c)
	}
	f := participant.TLSFiles{CA: cfg.ClientTLS.CAFile, Cert: cfg.ClientTLS.CertFile, Key: cfg.ClientTLS.KeyFile}
	from, err := f.Load(cfg.Logger)
	if err != nil {
		return nil, withCode(CodeUsage, err)
	}
	return from, nil
}
