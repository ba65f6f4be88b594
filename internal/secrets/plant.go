package secrets

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// A marker is opening, the secret's name, a hyphen, and ending. Half a marker is found by either.
const (
	opening = "unisink-secret-"
	ending  = "5ec2e7f00dbadb1e"
)

// names of all secrets that tests plant, each for one place where a real one would stand. A run of all tests must have used
// every one: a place that nobody tries shows nothing.
var names = []string{
	"certificate-key", // the key file of a node or of a tool
	"kafka-env",       // a password of SASL from the environment, of the right and of a wrong user
	"kafka-file",      // the same from a file
	"kafka-token",     // of OAUTHBEARER
	"kafka-written",   // in the place of a reference
	"postgres-dsn",    // in a connection string that the driver cannot read
	"postgres-node",   // in the resources of a coordinator's resolver: its log, its metrics, handles and events
	"postgres-role",   // of a role, right and wrong
	"postgres-script", // given to the command line
	"spec-password",   // what a specification's secrets name, in settings with mistakes
	"spec-run",        // what a specification that is run names
}

// Logger is told which secret was planted: a test, or a script of one.
type Logger interface {
	Logf(format string, args ...any)
}

// Plant returns the secret of this name, the same in each process, and logs that it is used, without showing it. The name is
// one of this package's list; another panics. A test may put characters around it, such as those that end a
// password in an address.
func Plant(log Logger, name string) string {
	if h, ok := log.(interface{ Helper() }); ok {
		h.Helper()
	}
	secret := Marker(name)
	log.Logf("secrets: planted %s", name)
	return secret
}

// Marker returns the secret of a name without logging that it is used, which somebody else does by Plant.
func Marker(name string) string {
	if !slices.Contains(names, name) {
		panic(fmt.Sprintf("secrets: %q is not in the list of internal/secrets; add it", name))
	}
	return opening + name + "-" + ending
}

// planted finds what Plant logs.
var planted = regexp.MustCompile(`secrets: planted ([a-z-]+)`)

// Absent fails the test if text holds a planted secret, in whatever encoding; what says which text it is.
func Absent(t testing.TB, what, text string) {
	t.Helper()
	if how := Shown(text); how != "" {
		t.Errorf("%s shows a planted secret (%s)", what, how)
	}
}

// Shown is the encoding of the first planted secret in a text; empty if there is none.
func Shown(text string) string {
	if all := find([]byte(text)); len(all) > 0 {
		return all[0].encoding
	}
	return ""
}
