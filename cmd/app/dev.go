package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/cmd/orders"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/plural"
)

func (a *app) dev() *cli.Command {
	return group("dev", "things for trying out, none for data that matters",
		&cli.Command{
			Name: "kafka", Usage: "an embedded Kafka broker",
			Description: "It is no real broker: killed with -9 it forgets how transactions ended. Stop it with Ctrl-C." +
				forExample("unisink dev kafka --topic orders --topic order-totals:1"),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9092", Usage: "`ADDRESS` to serve at"},
				&cli.StringFlag{Name: "data", Usage: "`DIR` to keep topics in over a graceful stop; in memory by default"},
				&cli.StringSliceFlag{Name: "topic", Usage: "`NAME[:PARTITIONS]` of a topic to make; 4 partitions by default"},
			},
			Action: a.devKafka,
		},
		&cli.Command{
			Name: "orders", Usage: "write made-up orders for `run orders`, until Ctrl-C",
			Description: "The topic must be there: `unisink dev kafka --topic orders` makes it.",
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "brokers", EnvVars: []string{"UNISINK_BROKERS"}, Value: cli.NewStringSlice("127.0.0.1:9092"), Usage: "`ADDRESS` of Kafka brokers; several times or comma-separated"},
				&cli.StringFlag{Name: "to", Value: "orders", Usage: "`TOPIC` to write to"},
				&cli.IntFlag{Name: "rate", Value: 200, Usage: "`ORDERS` per second"},
			},
			Action: a.devOrders,
		},
		&cli.Command{
			Name: "faults", Usage: "list the fault points, for a binary built with -tags faults", Hidden: true,
			Action: a.devFaults,
		},
	)
}

func (a *app) devFaults(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	if !fault.Enabled {
		return failf(CodeRefused, "this binary has no fault points; build it with -tags faults")
	}
	names := fault.Known()
	return a.show(c, names, func() [][]string {
		rows := [][]string{{"POINT"}}
		for _, n := range names {
			rows = append(rows, []string{n})
		}
		return rows
	})
}

func (a *app) devKafka(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	addr := c.String("listen")
	if err := mayListen(addr); err != nil {
		return err
	}
	topics, err := parseTopics(c.StringSlice("topic"))
	if err != nil {
		return err
	}
	b, err := devkafka.Start(devkafka.Config{Addr: addr, DataDir: c.String("data"), Topics: topics})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Fprintln(a.out, "embedded Kafka broker at "+b.Addr())
	<-c.Context.Done()
	return nil
}

const defaultPartitions = 4

func parseTopics(list []string) (map[string]int, error) {
	topics := map[string]int{}
	for _, text := range list {
		name, partitions, given := strings.Cut(text, ":")
		n := defaultPartitions
		if given {
			var err error
			if n, err = strconv.Atoi(partitions); err != nil || n < 1 || n > 1000 {
				return nil, usagef("--topic %q is not NAME:PARTITIONS with 1 to 1000 partitions", text)
			}
		}
		if name == "" {
			return nil, usagef("--topic %q has no name", text)
		}
		topics[name] = n
	}
	return topics, nil
}

func (a *app) devOrders(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	if c.Int("rate") < 1 {
		return usagef("--rate must be 1 or more")
	}
	topic := c.String("to")
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: c.StringSlice("brokers")})
	if err != nil {
		return withCode(CodeUsage, err)
	}
	found, err := a.awaitBroker(c.Context, admin, topic)
	admin.Close()
	if err != nil {
		return withCode(CodeNoLeader, err)
	}
	if !found {
		return failf(CodeNotFound, "the brokers at %v have no topic %q; make it (`unisink dev kafka --topic %s`), or name another with --to", c.StringSlice("brokers"), topic, topic)
	}
	fmt.Fprintf(a.err, "writing %s a second to topic %s; Ctrl-C ends it\n", plural.Of(c.Int("rate"), "order"), topic)
	var count atomic.Int64
	if err := orders.Generate(c.Context, c.StringSlice("brokers"), topic, c.Int("rate"), &count); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s written\n", plural.Of(count.Load(), "order"))
	return nil
}

// awaitBroker asks whether the topic is there. A broker that was started just before, in another terminal or with &, is
// waited for.
func (a *app) awaitBroker(ctx context.Context, admin *kafka.Admin, topic string) (found bool, err error) {
	const patience, pause = 5 * time.Second, 200 * time.Millisecond
	for began, told := time.Now(), false; ; {
		_, found, err = admin.TopicExists(ctx, topic)
		if err == nil || time.Since(began) > patience || !errors.Is(err, syscall.ECONNREFUSED) {
			return found, err
		}
		if !told {
			fmt.Fprintln(a.out, "no broker answers yet; it is waited for")
			told = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, err
		}
	}
}

// mayListen says in one sentence why an address is not to be had.
func mayListen(addr string) error {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return failf(CodeRefused, "another process listens at %s already", addr)
	case err != nil:
		return usagef("cannot listen at %s: %v", addr, err)
	}
	return l.Close()
}
