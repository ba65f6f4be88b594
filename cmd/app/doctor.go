package app

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/internal/finding"
	"github.com/unisink/unisink/participant"
)

func (a *app) doctor() *cli.Command {
	return group("doctor", "look at brokers and servers before anything runs, and change nothing",
		&cli.Command{
			Name: "kafka", Usage: "replication, retention, time-outs, versions, rights and clock of a Kafka cluster",
			Description: "Each finding has the setting, the value found and the value wanted. Rights are those of the client\n" +
				"that asks. Exit code 10 if there is a warning or an error, 3 if no broker answers." +
				forExample("unisink doctor kafka --brokers k1:9092,k2:9092 --from orders --topics totals,late"),
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "brokers", EnvVars: []string{"UNISINK_BROKERS"}, Value: cli.NewStringSlice("127.0.0.1:9092"), Usage: "`ADDRESS` of Kafka brokers; several times or comma-separated"},
				&cli.StringSliceFlag{Name: "topics", Usage: "`TOPIC` that is written; several times or comma-separated"},
				&cli.StringSliceFlag{Name: "from", Usage: "`TOPIC` that is read; several times or comma-separated"},
				&cli.StringFlag{Name: "namespace", Usage: "`NAME` of the coordinator group, with which transactional ids and groups begin"},
				&cli.DurationFlag{Name: "transaction-timeout", Usage: "`TIME` that the sinks ask for; the most that the brokers allow by default"},
				&cli.DurationFlag{Name: "in-doubt", Value: 24 * time.Hour, Usage: "`TIME` that a prepared transaction may have to wait in the worst case"},
			},
			Action: a.doctorKafka,
		},
		doctorPostgresCommand(a),
	)
}

func (a *app) doctorKafka(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	found, err := kafka.Examine(ctx, kafka.DoctorConfig{
		Sink: kafka.SinkConfig{Brokers: c.StringSlice("brokers"), TransactionTimeout: c.Duration("transaction-timeout"), Logger: log},
		From: c.StringSlice("from"), To: c.StringSlice("topics"), Namespace: c.String("namespace"), InDoubt: c.Duration("in-doubt"),
	})
	switch {
	case errors.Is(err, participant.ErrMisconfigured):
		return withCode(CodeUsage, err)
	case err != nil:
		return withCode(CodeNoLeader, err)
	}
	return a.showFindings(c, found)
}

// showFindings prints them; the error says how many are not as they should be.
func (a *app) showFindings(c *cli.Context, found []finding.Finding) error {
	out := struct {
		Findings []finding.Finding `json:"findings"`
	}{found}
	if err := a.show(c, out, func() [][]string { return findingRows(found) }); err != nil {
		return err
	}
	if n := finding.Unwell(found); n > 0 {
		return failf(CodeUnhealthy, "%d of %d settings are not as they should be", n, len(found))
	}
	return nil
}

func findingRows(found []finding.Finding) [][]string {
	table := [][]string{{"SEVERITY", "SUBJECT", "SETTING", "FOUND", "WANTED", "WHY"}}
	for _, f := range found {
		table = append(table, []string{string(f.Severity), f.Subject, f.Setting, f.Found, f.Wanted, f.Why})
	}
	return table
}
