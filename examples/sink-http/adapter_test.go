package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/examples/sink-http/service"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sink-http": func() { os.Exit(run()) }})
}

func TestTheShopConforms(t *testing.T) {
	participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
		shop, path := service.New(), filepath.Join(t.TempDir(), "journal")
		server := httptest.NewServer(shop)
		t.Cleanup(server.Close)
		return participanttest.Target{
			Process: func(t testing.TB) participant.Resource {
				sink, err := newSink(settings{URL: server.URL, Account: "test", Journal: path})
				if err != nil {
					t.Fatal(err)
				}
				return sink
			},
			Write: func(t testing.TB, b participant.Branch, record string) {
				if err := b.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
					t.Fatal(err)
				}
			},
			Read: func(testing.TB) []string { return shop.Sold() },
		}
	}})
}

// What the documentation says of it.
func TestTheAdapterIsShorterThanSixtyLines(t *testing.T) {
	text, err := os.ReadFile("adapter.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 60 {
		t.Fatalf("adapter.go has %d lines", n)
	}
}

// A pipeline's file names the shop, its process is killed, and everything is sold once.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"freeport": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, v := range args {
					addr, err := freeport.Loopback()
					ts.Check(err)
					ts.Setenv(v, addr)
				}
			},
			"sold": sold, "until": until,
		},
	})
}

// sold prints what the shop has sold.
func sold(ts *testscript.TestScript, _ bool, _ []string) {
	resp, err := http.Get(ts.Getenv("SHOP_URL") + "/sold")
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// until TEXT COMMAND...: repeats a command until its output has the text.
func until(ts *testscript.TestScript, _ bool, args []string) {
	end, tick := time.Now().Add(30*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		var out string
		if args[1] == "sold" {
			resp, err := http.Get(ts.Getenv("SHOP_URL") + "/sold")
			ts.Check(err)
			text, err := io.ReadAll(resp.Body)
			ts.Check(errors.Join(err, resp.Body.Close()))
			out = string(text)
		} else {
			_ = ts.Exec(args[1], args[2:]...) // what it prints is looked at
			out = ts.ReadFile("stdout")
		}
		if strings.Contains(out, args[0]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%q never came; the last output:\n%s%s", args[0], out, ts.ReadFile("stderr"))
		}
		<-tick.C
	}
}
