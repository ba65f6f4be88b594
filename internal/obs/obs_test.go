package obs_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/unisink/unisink/internal/obs"
)

func TestMetricNamesEndInTheirUnit(t *testing.T) {
	unit := regexp.MustCompile(`^unisink_[a-z_]+_(total|seconds|bytes|count|entries|number|ratio|records)$`)
	for _, name := range obs.Metrics() {
		if !unit.MatchString(name) {
			t.Errorf("metric %q does not end in a known unit", name)
		}
	}
}

func TestMetricsListsEveryMetricConstantOnce(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "metrics.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Metric") {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		declared = append(declared, name)
		return true
	})
	listed := obs.Metrics()
	slices.Sort(declared)
	slices.Sort(listed)
	if !slices.Equal(declared, listed) {
		t.Errorf("declared and listed differ:\n%v\n%v", declared, listed)
	}
	if len(slices.Compact(listed)) != len(declared) {
		t.Error("a metric name is used twice")
	}
}

func TestKeysReadAsWritten(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	log.Info("vote overdue", obs.Scope("orders/0"), obs.Epoch(7, 12), obs.Member("sink"),
		obs.Term(3), obs.Err(errors.New("no answer")), obs.Err(nil))
	want := "level=INFO msg=\"vote overdue\" scope=orders/0 epoch=7.12 member=sink term=3 err=\"no answer\"\n"
	if out.String() != want {
		t.Errorf("logged %q, want %q", out.String(), want)
	}
}
