package pairs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// script is the least that makes two branches durable and commits both: what a program does that nobody coordinates.
// The names are free again once they are committed, so each client has two.
const script = `BEGIN;
INSERT INTO one VALUES ('` + rowText + `');
PREPARE TRANSACTION 'one.:client_id';
BEGIN;
INSERT INTO two VALUES ('` + rowText + `');
PREPARE TRANSACTION 'two.:client_id';
COMMIT PREPARED 'one.:client_id';
COMMIT PREPARED 'two.:client_id';
`

// debianPrograms is where Debian's packages put what stands in nobody's path.
const debianPrograms = "/usr/lib/postgresql/*/bin/pgbench"

// findPgbench looks in the path, and where Debian has it.
func findPgbench() (string, error) { return findIn("pgbench", debianPrograms) }

func findIn(name, elsewhere string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob(elsewhere)
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, fmt.Errorf("pgbench is neither in the PATH nor at %s; install it (on Debian and Ubuntu: apt-get install postgresql-contrib or postgresql)", elsewhere))
	}
	return found[len(found)-1], nil
}

func (l *lab) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, l.pgbench, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", l.pgbench, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// bare has pgbench make pairs for the time of a pass.
func (l *lab) bare(ctx context.Context, clients int) (pass, error) {
	file := filepath.Join(l.dir, "pairs.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return pass{}, fmt.Errorf("write pgbench's script: %w", err)
	}
	at, err := url.Parse(l.server.Database(bareDatabase))
	if err != nil {
		return pass{}, fmt.Errorf("read the server's address: %w", err)
	}
	// Simple protocol: in the others the client's number would be a parameter, which the name of a prepared
	// transaction cannot hold.
	cmd := exec.CommandContext(ctx, l.pgbench, "--no-vacuum", "--protocol=simple", "--file="+file,
		"--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, runtime.NumCPU())),
		"--time="+strconv.Itoa(int(l.c.Duration.Seconds())),
		"--host="+at.Hostname(), "--port="+at.Port(), "--username="+at.User.Username(), bareDatabase)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PGSSLMODE=disable")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return pass{}, fmt.Errorf("pgbench failed: %w: %s", err, strings.TrimSpace(said.String()))
	}
	p, err := readPgbench(string(out))
	p.client = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return p, err
}

var (
	donePattern  = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	perSPattern  = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)`)
	meanPattern  = regexp.MustCompile(`(?m)^latency average = ([0-9.]+) ms`)
	failsPattern = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
)

// readPgbench reads what pgbench (14 or newer) says at its end.
func readPgbench(said string) (p pass, err error) {
	number := func(pattern *regexp.Regexp) float64 {
		m := pattern.FindStringSubmatch(said)
		if m == nil {
			err = errors.Join(err, fmt.Errorf("pgbench does not say %q: version 14 or newer is needed", pattern))
			return 0
		}
		v, perr := strconv.ParseFloat(m[1], 64)
		err = errors.Join(err, perr)
		return v
	}
	p = pass{done: int(number(donePattern)), perS: number(perSPattern), mean: number(meanPattern)}
	if failsPattern.MatchString(said) && number(failsPattern) > 0 {
		err = errors.Join(err, fmt.Errorf("%v transactions of pgbench failed", number(failsPattern)))
	}
	if err == nil && (p.done == 0 || p.perS <= 0) {
		err = errors.New("pgbench made no transaction")
	}
	if err != nil {
		return pass{}, fmt.Errorf("%w; it said:\n%s", err, said)
	}
	return p, nil
}
