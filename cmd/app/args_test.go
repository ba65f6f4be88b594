package app

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestFlagsMayStandAnywhere(t *testing.T) {
	root := newApp().root()
	for _, c := range []struct{ in, want string }{
		{"unisink", "unisink"},
		{"unisink version", "unisink version"},
		{"unisink pipeline stop orders -o json", "unisink -o json pipeline stop -- orders"},
		{"unisink pipeline -o json stop --no-wait orders", "unisink -o json pipeline stop --no-wait -- orders"},
		{"unisink -c a:1 pipeline list --coordinator=b:2", "unisink -c a:1 --coordinator=b:2 pipeline list"},
		{"unisink epoch list orders --limit 3 --in-doubt", "unisink epoch list --limit 3 --in-doubt -- orders"},
		{"unisink run orders --from a --no-wait", "unisink run orders --from a --no-wait"},
		{"unisink txn show -- -odd-id --limit", "unisink txn show -- -odd-id --limit"},
		{"unisink pipeline show orders --help", "unisink pipeline show --help"},
		{"unisink pipeline list --nope x", "unisink pipeline list --nope -- x"},
		{"unisink nope pipeline list", "unisink -- nope pipeline list"},
		{"unisink version --", "unisink version"},
		{"unisink version -", "unisink version -- -"},
		// A value is taken as it is, also when it looks like a flag or a command.
		{"unisink verify orders --dir --from --to version", "unisink verify --dir --from --to version -- orders"},
	} {
		got, err := normalise(root, strings.Fields(c.in))
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.in, strings.Join(got, " "), err, c.want)
		}
	}
	if _, err := normalise(root, []string{"unisink", "pipeline", "list", "-o"}); codeOf(err) != CodeUsage {
		t.Errorf("a flag without its value: %v", err)
	}
}

func newApp() *app {
	return &app{pipelines: []Pipeline{OrdersPipeline()}}
}

// Whatever is typed, every argument is still there, and none twice; "--" alone may come and go.
func FuzzNormaliseLosesNoArgument(f *testing.F) {
	for _, seed := range []string{
		"unisink", "unisink pipeline stop orders -o json", "unisink -c a:1 --timeout 1s epoch show o 1.2", "unisink -- --", "unisink run orders --dir -- x",
		"unisink txn show - -- -x --output", "unisink verify orders --help", "unisink txn show -h x -- y", "unisink --output=json -o=table version --nope", "unisink \x00 -\xff -=", "unisink --- pipeline",
	} {
		f.Add(strings.Join(strings.Fields(seed), "\n"))
	}
	root := newApp().root()
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		got, err := normalise(root, slices.Clone(args))
		if err != nil {
			if codeOf(err) != CodeUsage {
				t.Fatalf("%q: %v", args, err)
			}
			return
		}
		if got[0] != args[0] {
			t.Fatalf("%q became %q: the program is another", args, got)
		}
		rest := func(a []string) []string {
			a = slices.DeleteFunc(slices.Clone(a), func(s string) bool { return s == "--" })
			slices.Sort(a)
			return a
		}
		if help := slices.Contains(got, "--help") || slices.Contains(got, "-h"); help {
			// Who asks for help is shown the page, whatever else was typed; nothing is made up.
			for _, a := range rest(got) {
				if !slices.Contains(args, a) {
					t.Fatalf("%q became %q", args, got)
				}
			}
		} else if !slices.Equal(rest(args), rest(got)) {
			t.Fatalf("%q became %q", args, got)
		}
		// Positional arguments keep their order, and a second pass has nothing left to do.
		again, err := normalise(root, slices.Clone(got))
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%q became %q, then %q, %v", args, got, again, err)
		}
	})
}

func TestAnArgumentThatIsNoTextIsRefusedInWords(t *testing.T) {
	var out, told bytes.Buffer
	code := Main(t.Context(), []string{"unisink", "txn", "abort", "x", "--why", "\xff\x1b"}, WithOutput(&out, &told))
	if want := "unisink: the argument \"\\xff\\x1b\" is no UTF-8 text; type it in a terminal that writes UTF-8\n"; code != int(CodeUsage) || told.String() != want || out.Len() > 0 {
		t.Errorf("exit code %d, %q, want %q", code, told.String(), want)
	}
}
