package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/participant"
)

// dsnFlag is the connection string, which is better told by the environment: arguments are seen by everybody on the machine.
func dsnFlag() cli.Flag {
	return &cli.StringFlag{Name: "dsn", EnvVars: []string{"UNISINK_POSTGRES_DSN"}, DefaultText: "none", Usage: "`STRING` of the connection, a URL or key=value pairs; with a password in it, rather by the variable"}
}

func poolerFlag() cli.Flag {
	return &cli.BoolFlag{Name: "pooler", Usage: "the connection goes through a pooler in transaction mode"}
}

func (a *app) postgres() *cli.Command {
	return group("postgres", "prepare a PostgreSQL database for sinks",
		&cli.Command{
			Name: "init", Usage: "make what sinks keep in a database, or print the SQL for it",
			Description: "It makes the schema unisink with its tables where they are missing, says what it made, and may be run again.\n" +
				"A pipeline does the same when it starts, if its role may. With --print nothing is connected to: let somebody who\n" +
				"may run what it prints, and grant the pipeline's role the rights that stand at its end.",
			Flags: []cli.Flag{
				dsnFlag(), poolerFlag(),
				&cli.BoolFlag{Name: "print", Usage: "print the SQL and do nothing"},
			},
			Action: a.postgresInit,
		},
	)
}

const grants = `
-- For the role of a pipeline, here called etl, if it is another than the one that ran this:
--   GRANT USAGE ON SCHEMA unisink TO etl;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unisink TO etl;
--   GRANT EXECUTE ON FUNCTION pg_control_system() TO etl;
`

func (a *app) postgresInit(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	if c.Bool("print") {
		_, err := fmt.Fprint(a.out, postgres.Schema(), grants)
		return err
	}
	if err := need(c, "dsn"); err != nil {
		return err
	}
	d, err := postgres.New(postgres.Options{DSN: c.String("dsn"), Pooler: c.Bool("pooler")})
	if err != nil {
		return withCode(CodeUsage, oneSentence(err))
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	made, err := d.Init(ctx)
	if err := errors.Join(postgresError(err), d.Close()); err != nil {
		return err
	}
	out := struct {
		Made []string `json:"made"`
	}{made}
	return a.show(c, out, func() [][]string {
		if len(made) == 0 {
			return [][]string{{"MADE"}, {"nothing: all is there"}}
		}
		table := [][]string{{"MADE"}}
		for _, m := range made {
			table = append(table, []string{m})
		}
		return table
	})
}

// postgresError gives an error of a database its exit code.
func postgresError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return withCode(CodeDeadline, fmt.Errorf("no PostgreSQL server answers in time: %w", oneSentence(err)))
	case errors.Is(err, participant.ErrMisconfigured):
		return withCode(CodeNotAllowed, oneSentence(err))
	}
	return withCode(CodeNoLeader, fmt.Errorf("no PostgreSQL server answers: %w", oneSentence(err)))
}

// oneSentence is an error in one line, without its class.
func oneSentence(err error) error {
	text := strings.ReplaceAll(err.Error(), ": "+participant.ErrMisconfigured.Error(), "")
	text = strings.ReplaceAll(text, participant.ErrMisconfigured.Error()+": ", "")
	return errors.New(strings.Join(strings.Fields(text), " "))
}

func doctorPostgresCommand(a *app) *cli.Command {
	return &cli.Command{
		Name: "postgres", Usage: "version, prepared transactions, durability, time-outs, rights and clock of a PostgreSQL server",
		Description: "Each finding has the setting, the value found and the value wanted. Rights are those of the role that\n" +
			"asks. Exit code 10 if there is a warning or an error, 3 if no server answers." +
			forExample("unisink doctor postgres --dsn postgres://etl@db:5432/shop --tables totals"),
		Flags: []cli.Flag{
			dsnFlag(), poolerFlag(),
			&cli.StringFlag{Name: "mode", Value: "prepared", Usage: "`MODE` of the sinks: prepared or staged"},
			&cli.StringSliceFlag{Name: "tables", Usage: "`TABLE` that is appended to; several times or comma-separated"},
			&cli.IntFlag{Name: "members", Value: 1, Usage: "`NUMBER` of sinks that write to the server at once"},
			&cli.IntFlag{Name: "max-pending", Value: 2, Usage: "`NUMBER` of epochs that a sink may have waiting"},
			&cli.DurationFlag{Name: "in-doubt", Value: time.Hour, Usage: "`AGE` at which a prepared transaction is a warning"},
		},
		Action: a.doctorPostgres,
	}
}

func (a *app) doctorPostgres(c *cli.Context) error {
	if err := errors.Join(noArgs(c), need(c, "dsn")); err != nil {
		return err
	}
	mode, err := postgres.ParseMode(c.String("mode"))
	if err != nil {
		return usagef("--%s", err)
	}
	if c.Int("members") < 1 || c.Int("max-pending") < 1 {
		return usagef("--members and --max-pending are at least 1")
	}
	o := postgres.Options{DSN: c.String("dsn"), Mode: mode, Pooler: c.Bool("pooler")}
	for _, t := range c.StringSlice("tables") {
		o.Tables = append(o.Tables, postgres.Table{Name: t})
	}
	if err := o.Validate(); err != nil {
		return withCode(CodeUsage, oneSentence(err))
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	found, err := postgres.Examine(ctx, postgres.DoctorConfig{Options: o, Members: c.Int("members"), MaxPending: c.Int("max-pending"), InDoubt: c.Duration("in-doubt")})
	if err != nil {
		return postgresError(err)
	}
	return a.showFindings(c, found)
}
