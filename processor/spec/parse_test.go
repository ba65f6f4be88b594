package spec_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/processor/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// lookup is the environment of the tests.
func lookup(name string) (string, bool) {
	v, ok := map[string]string{"BROKERS": "k1:9092, k2:9092", "EMPTY": "", "PASSWORD": "hush"}[name]
	return v, ok
}

var env = spec.Env{Lookup: lookup}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update and look at the difference.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// each runs a test for each file of a folder and compares what it returns with the golden beside it.
func each(t *testing.T, pattern string, f func(t *testing.T, file string, text []byte) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s (%v)", pattern, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", f(t, filepath.Base(path), text))
		})
	}
}

func TestMistakesOfFormAreToldWithTheirPlace(t *testing.T) {
	each(t, "testdata/parse/*.yaml", func(_ *testing.T, file string, text []byte) string {
		_, err := spec.Parse(file, text, env)
		if err == nil {
			return "no mistake\n"
		}
		return err.Error() + "\n"
	})
}

// minimal is the least that a window needs.
const minimal = `
pipeline: p
source: {kafka: {topics: [in]}}
key: rec.k
window: {tumbling: 1s, aggregate: {n: count()}}
sinks: [{name: out, kafka: {topic: out}}]
`

func TestDefaultsAreFilledIn(t *testing.T) {
	d, err := spec.Parse("p.yaml", []byte(minimal), env)
	if err != nil {
		t.Fatal(err)
	}
	got := line(d.Epoch, d.KeyGroups, d.Source.Name.Value, d.Source.Format, d.Source.Disorder, d.Source.IdleAfter,
		d.OnError, d.Window.ID.Value, d.Window.Kind, d.Window.Size, d.Sinks[0].Format, d.Use(0), d.StateDir == "")
	if want := "1s 128 source json 0s 1m0s fail window tumbling 1s json results true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	_, err := spec.Parse("p.yaml", []byte(minimal+"#"+strings.Repeat("x", 1<<20)), env)
	if err == nil || !strings.Contains(err.Error(), "a specification may have 1048576") {
		t.Errorf("got %v", err)
	}
}

// line prints values with spaces between them.
func line(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

type settings struct {
	Brokers  []string `yaml:"brokers,required"`
	Topic    string
	MaxBytes int
	Wait     time.Duration
	Fast     bool
	Level    level
	SASL     *sasl             `yaml:"sasl"`
	Extra    map[string]string `yaml:"extra"`
	Hidden   string            `yaml:"-"`
}

type sasl struct {
	User     string
	Password spec.Secret `yaml:"password,required"`
}

type level int

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "high" {
		return errors.New(`write high`)
	}
	*l = 7
	return nil
}

func sinkSettings(t *testing.T, lines string) spec.Settings {
	t.Helper()
	text := strings.Replace(minimal, "{topic: out}", "\n"+lines, 1)
	text = strings.Replace(text, "sinks: [{name: out, kafka: ", "sinks:\n- name: out\n  kafka:", 1)
	text = strings.TrimSuffix(strings.TrimSpace(text), "}]")
	d, err := spec.Parse("p.yaml", []byte(text), env)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return d.Sinks[0].Settings
}

func TestSettingsFillAStruct(t *testing.T) {
	s := sinkSettings(t, `
    brokers: "${BROKERS}"
    topic: a-${NOT_SET:-b}-$$5
    max_bytes: 12
    wait: 5s
    fast: true
    level: high
    sasl: {user: ada, password: {env: PASSWORD}}
    extra: {x: "1", y: two}`)
	got := settings{Hidden: "kept"}
	if err := s.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.SASL.Password.Reveal() != "hush" {
		t.Error("the secret is not what the environment says")
	}
	text := line(got.Brokers, got.Topic, got.MaxBytes, got.Wait, got.Fast, got.Level, *got.SASL, got.Extra, got.Hidden)
	if want := "[k1:9092 k2:9092] a-b-$5 12 5s true 7 {ada secret from environment variable PASSWORD} map[x:1 y:two] kept"; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestMistakesInSettingsAreToldTogether(t *testing.T) {
	t.Setenv("UNUSED", "")
	s := sinkSettings(t, `
    topik: x
    topic: ${NOWHERE}
    max_bytes: many
    wait: 5 sec
    fast: yes
    level: low
    sasl: {user: {env: PASSWORD}, password: hush}
    extra: [1]`)
	err := s.Decode(&settings{})
	var m spec.Mistakes
	if !errors.As(err, &m) {
		t.Fatalf("got %v", err)
	}
	golden(t, "testdata/settings.golden", err.Error()+"\n")
	if strings.Contains(err.Error(), "hush") {
		t.Error("the secret stands in the message")
	}
}

// TestASecretIsNeverPrinted: whatever is done with it, but Reveal.
func TestASecretIsNeverPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sinkSettings(t, "    brokers: b\n    sasl: {password: {file: "+file+"}}")
	var got settings
	if err := s.Decode(&got); err != nil {
		t.Fatal(err)
	}
	p := got.SASL.Password
	text, _ := p.MarshalText()
	all := fmt.Sprintf("%v %+v %#v %s %q %x %d %s %s %v %+v", p, p, p, p, p, p, p, text, p.LogValue(), got.SASL, s)
	if strings.Contains(all, "hush") || strings.Contains(all, fmt.Sprintf("%x", "hush")) {
		t.Errorf("printed: %s", all)
	}
	if p.Reveal() != "hush" {
		t.Errorf("reveals %q", p.Reveal())
	}
}

// A secret that was written into the file by mistake is refused by Decode; explain must not hand it on.
func TestASecretThatStandsInTheFileIsNotShown(t *testing.T) {
	s := sinkSettings(t, "    brokers: b\n    sasl: {user: ada, password: hush, Token: hush, client_secret: hush}\n    key: {password: {env: NAME}}")
	if got, want := s.Show(), "{brokers: b, sasl: {user: ada, password: (not shown), Token: (not shown), client_secret: (not shown)}, key: {password: {env: NAME}}}"; got != want {
		t.Errorf("shown %s\nwant  %s", got, want)
	}
}

func TestASettingsMistakeHasThePlaceOfItsField(t *testing.T) {
	s := sinkSettings(t, "    brokers: b\n    sasl:\n      user: ada")
	if err := s.Mistake("sasl.user", "not %s", "allowed"); err.Error() != "p.yaml:10:7: sinks[0].kafka.sasl.user: not allowed" {
		t.Errorf("got %v", err)
	}
	if err := s.Mistake("", "odd"); err.Error() != "p.yaml:7:3: sinks[0].kafka: odd" {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: no text makes Parse or Explain panic, and what they say is Mistakes.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := spec.Parse("p.yaml", text, env)
		var m spec.Mistakes
		switch {
		case err == nil && d == nil:
			t.Fatal("neither a document nor a mistake")
		case err == nil:
			if _, err := spec.Explain(d, newWorld().adapters()); err != nil && !errors.As(err, &m) {
				t.Fatalf("Explain: not Mistakes: %v", err)
			}
		case !errors.As(err, &m) || len(m) == 0:
			t.Fatalf("not Mistakes: %v", err)
		}
	})
}
