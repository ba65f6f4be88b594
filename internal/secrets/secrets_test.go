package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// told collects what is logged; these tests show no secret and log no use of one, since their own output is looked at too.
type told struct{ strings.Builder }

func (l *told) Logf(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }

func marker(t *testing.T) string {
	t.Helper()
	return Plant(&told{}, names[0])
}

// everyByte writes each byte of a text in a form.
func everyByte(form string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, b := range []byte(s) {
			fmt.Fprintf(&out, form, b)
		}
		return out.String()
	}
}

func coded(before string, e *base64.Encoding) func(string) string {
	return func(s string) string { return e.EncodeToString([]byte(before + s + "\xfb\xff after")) }
}

var sabotages = []struct {
	name   string
	show   func(string) string
	wanted string
}{
	{"plain", func(s string) string { return "password=" + s + " refused" }, "plain"},
	{"only its beginning", func(s string) string { return s[:len(opening)] + "…" }, "plain"},
	{"only its end", func(s string) string { return "…" + s[len(s)-len(ending):] }, "plain"},
	{"quoted", func(s string) string { return strconv.Quote(strconv.Quote(`p"` + s)) }, "plain"},
	{"in an address", func(s string) string { return "postgres://u:" + url.QueryEscape(s+"@/") + "@h/d" }, "plain"},
	{"an address that is escaped more than it must be", func(s string) string { return strings.ReplaceAll(s, "-", "%2D") }, "escaped"},
	{"all of an address escaped", everyByte("%%%02X"), "hex"},
	{"JSON", everyByte(`\u%04x`), "escaped"},
	{"JSON in part", func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "-", `\u002d`), "5", `\u0035`) }, "escaped"},
	{"octal", everyByte(`\%03o`), "escaped"},
	{"markup", func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "-", "&#45;"), "5", "&#x35;") }, "escaped"},
	{"base64, first place", coded("", base64.StdEncoding), "base64"},
	{"base64, second place", coded("\xff", base64.StdEncoding), "base64"},
	{"base64, third place", coded("\xff\xff", base64.StdEncoding), "base64"},
	{"base64 of addresses", coded("u:", base64.RawURLEncoding), "base64"},
	{"hex", func(s string) string { return hex.EncodeToString([]byte(s)) }, "hex"},
	{"hex in capitals", func(s string) string { return fmt.Sprintf("%X", s) }, "hex"},
	{"hex with spaces", func(s string) string { return fmt.Sprintf("% x", s) }, "hex"},
	{"hex as in Go", func(s string) string { return fmt.Sprintf("%#v", []byte(s)) }, "hex"},
	{"hex as in strings", everyByte(`\x%02x`), "hex"},
	{"bytes of Go", everyByte("%d "), "decimal"},
	{"bytes of JSON", everyByte("%d, "), "decimal"},
	{"over two lines", func(s string) string { return s[:6] + "\n        " + s[6:30] + "\r\n" + s[30:] }, "plain, over several lines"},
	{"over two logs", func(s string) string { return "    a_test.go:7: " + s[:20] + "\n    a_test.go:8: " + s[20:] }, "plain"},
	{"base64 in lines", func(s string) string {
		all := coded(strings.Repeat("x", 7), base64.StdEncoding)(s)
		return all[:14] + "\n" + all[14:28] + "\n" + all[28:]
	}, "base64"},
}

func jsonOf(t *testing.T, events ...event) string {
	t.Helper()
	var out bytes.Buffer
	for _, e := range events {
		if err := json.NewEncoder(&out).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

const pkg = "github.com/unisink/unisink/a"

func TestASecretIsFoundInEveryEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range sabotages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shown := c.show(marker(t))
			half := len(shown) / 2
			for name, in := range map[string]string{
				"a log": "secrets: planted x\nfine\n" + shown + "\nfine\n",
				"one event": jsonOf(t, event{"start", pkg, "", ""}, event{"output", pkg, "TestX", "secrets: planted x\n"}, event{"output", pkg, "TestX", "fine\n"},
					event{"output", pkg, "TestX", shown + "\n"}, event{"pass", pkg, "TestX", ""}),
				"two events": jsonOf(t, event{"start", pkg, "", ""}, event{"output", pkg, "TestX", "secrets: planted x\n"}, event{"output", pkg, "TestX", "fine\n" + shown[:half]},
					event{"output", pkg, "TestY", "between"}, event{"output", pkg, "TestX", shown[half:] + "\n"}),
			} {
				var out strings.Builder
				err := Scan([]string{"-"}, false, strings.NewReader(in), &out)
				if err == nil || !strings.Contains(err.Error(), "planted secrets are shown") || !strings.Contains(out.String(), c.wanted) {
					t.Errorf("%s: error %v; want it found as %s", name, err, c.wanted)
				}
				if where := "standard input: a TestX, line 3"; name != "a log" && !strings.Contains(out.String(), where) {
					t.Errorf("%s: the place is not told as %q", name, where)
				}
			}
		})
	}
}

func TestWhatShowsNoSecretPassesAndSaysWhatWasLookedAt(t *testing.T) {
	t.Parallel()
	in := jsonOf(t, event{"start", pkg, "", ""}, event{"output", pkg, "TestX", "secrets: planted kafka-env\n"}, event{"output", pkg, "TestX", "secrets: planted kafka-env\n"},
		event{"output", pkg, "TestY", "a password was refused; unisink keeps no secret-\n"}, event{"output", pkg, "", "ok\n"})
	var out strings.Builder
	if err := Scan([]string{"-"}, false, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if want := "no secret in 3 outputs of 106 bytes; 1 were planted: kafka-env\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	err := Scan([]string{"-"}, true, strings.NewReader(in), &out)
	if err == nil || !strings.Contains(err.Error(), "no test planted kafka-token") || strings.Contains(err.Error(), "kafka-env") {
		t.Errorf("with all: error %v; want those that nobody planted", err)
	}
}

func TestNothingPlantedShowsNothing(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "fine\n", jsonOf(t, event{"output", pkg, "TestX", "fine\n"})} {
		if err := Scan([]string{"-"}, false, strings.NewReader(in), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "no secret was planted") {
			t.Errorf("%q: error %v; want it said that nothing was planted", in, err)
		}
	}
}

func TestFoldersAreReadWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, "n1", "log")
	if err := os.MkdirAll(filepath.Dir(deep), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{filepath.Join(dir, "note"): "secrets: planted x\n", deep: "\x00\xff\n" + marker(t)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := Scan([]string{dir}, false, nil, &out); err == nil || !strings.Contains(out.String(), deep+", line 2: plain") {
		t.Errorf("error %v; want the place in the file below", err)
	}
	if err := Scan([]string{filepath.Join(dir, "nowhere")}, false, nil, &out); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("what is not there: error %v", err)
	}
	cut := jsonOf(t, event{"output", pkg, "TestX", "fine\n"}) + `{"Action":"out`
	if err := Scan([]string{"-"}, false, strings.NewReader(cut), &out); err == nil || !strings.Contains(err.Error(), "standard input:2: this is no line") {
		t.Errorf("an output that is cut off: error %v", err)
	}
}

func TestPlantLogsTheNameAlone(t *testing.T) {
	t.Parallel()
	var log told
	s := Plant(&log, "kafka-env")
	if log.String() != "secrets: planted kafka-env\n" || !strings.Contains(s, "kafka-env") || len(find([]byte(log.String()))) != 0 {
		t.Error("the log is not the name alone")
	}
	defer func() {
		if recover() == nil {
			t.Error("a name that is not in the list was taken")
		}
	}()
	Plant(&log, "another")
}

// quiet is a test that counts its errors.
type quiet struct {
	testing.TB
	errors int
}

func (q *quiet) Helper()               {}
func (q *quiet) Errorf(string, ...any) { q.errors++ }

func TestAbsentFailsTheTest(t *testing.T) {
	t.Parallel()
	q := &quiet{TB: t}
	Absent(q, "an error", "a password was refused")
	if q.errors != 0 {
		t.Error("it failed without a secret")
	}
	Absent(q, "an error", "the password "+marker(t)[:20]+" was refused")
	if q.errors != 1 {
		t.Errorf("%d errors, want 1", q.errors)
	}
}
