package app_test

import (
	"io"
	"net/http"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/internal/secrets"
)

// plant VAR NAME: the variable becomes the planted secret of that name. Scripts log commands as they are written, without what
// variables are; a command in the background is logged with them when it ends.
func plant(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], secrets.Plant(ts, args[1]))
}

// hides CODE COMMAND...: the command ends with just that code, and shows no planted secret, whatever else it says.
func hides(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if code := run(ts, args[1:]); code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	hidden(ts, false, nil)
}

// hidden: the last command, or those that were waited for, have shown no planted secret.
func hidden(ts *testscript.TestScript, _ bool, _ []string) {
	for _, stream := range []string{"stdout", "stderr"} {
		if how := secrets.Shown(ts.ReadFile(stream)); how != "" {
			ts.Fatalf("%s shows a planted secret (%s)", stream, how)
		}
	}
}

// get URL: what is answered there.
func get(ts *testscript.TestScript, _ bool, args []string) {
	answer, err := http.Get(args[0]) //nolint:gosec // an address of the script's own; the test's time bounds it
	ts.Check(err)
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	ts.Check(answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", args[0], answer.Status)
	}
	_, err = ts.Stdout().Write(text)
	ts.Check(err)
}
