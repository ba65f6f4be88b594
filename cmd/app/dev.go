package app

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/internal/fault"
)

func (a *app) dev() *cli.Command {
	return group("dev", "things for trying out, none for data that matters",
		&cli.Command{
			Name: "kafka", Usage: "an embedded Kafka broker",
			Description: "It is no real broker: killed with -9 it forgets how transactions ended. Stop it with Ctrl-C.",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9092", Usage: "`ADDRESS` to serve at"},
				&cli.StringFlag{Name: "data", Usage: "`DIR` to keep topics in over a graceful stop; in memory by default"},
			},
			Action: a.devKafka,
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
	b, err := devkafka.Start(devkafka.Config{Addr: addr, DataDir: c.String("data")})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Fprintln(a.out, "embedded Kafka broker at "+b.Addr())
	<-c.Context.Done()
	return nil
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
