package services_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
)

// stand puts a script in the place of a program, alone on the PATH with what scripts need, and
// an empty cache beside it. It returns the folder of both.
func stand(t *testing.T, program, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"sh", "mkdir", "sleep"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	if program != "" {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv(services.CacheVariable, filepath.Join(dir, "cache"))
	return dir
}

func TestManyProcessesFetchOnce(t *testing.T) {
	dir := stand(t, "mvn", "echo $$ >> \"$COUNT\"\nsleep 0.2\nmkdir lib\necho jar > lib/a.jar\n")
	t.Setenv("COUNT", filepath.Join(dir, "count"))
	t.Setenv(asProcess, "fetch-kafka")
	var all errgroup.Group
	for range 6 {
		all.Go(func() error {
			out, err := exec.CommandContext(t.Context(), os.Args[0]).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	count, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil || bytes.Count(count, []byte("\n")) != 1 {
		t.Errorf("fetched by %q (%v)", count, err)
	}
	if got := names(t, filepath.Join(dir, "cache")); !slices.Equal(got, []string{"fetch.lock", "kafka-" + services.KafkaCurrent}) {
		t.Errorf("the cache holds %v", got)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFetchThatFailsOnceIsTriedAgain(t *testing.T) {
	stand(t, "mvn", "[ -e tried ] && mkdir lib && exit 0\necho > tried\nexit 1\n")
	if err := services.FetchKafka(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFetchThatFailsSaysWhatMavenSaidAndEntersNothing(t *testing.T) {
	dir := stand(t, "mvn", "echo '[ERROR] no such artifact'\nexit 1\n")
	err := services.FetchKafka(t.Context())
	if err == nil || !strings.Contains(err.Error(), "failed 3 times") || !strings.Contains(err.Error(), "[ERROR] no such artifact") {
		t.Errorf("got %v", err)
	}
	if got := names(t, filepath.Join(dir, "cache")); !slices.Equal(got, []string{"fetch.lock"}) {
		t.Errorf("the cache holds %v", got)
	}
}

func TestMissingProgramIsOneSentence(t *testing.T) {
	for _, c := range []struct{ there, want string }{
		{"", "java is not on the PATH: Apache Kafka 4.4.0 needs Java 17 or newer; install it " +
			"(Debian: apt-get install default-jre-headless; macOS: brew install openjdk), or name a running server in UNISINK_TEST_KAFKA"},
		{"java", "mvn is not on the PATH: Maven fetches Apache Kafka 4.4.0; install it " +
			"(Debian: apt-get install maven; macOS: brew install maven), or name a running server in UNISINK_TEST_KAFKA"},
	} {
		t.Run("only "+c.there, func(t *testing.T) {
			stand(t, c.there, "exit 1\n")
			if _, err := services.Kafka(t.Context(), services.KafkaConfig{}); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	stand(t, "", "")
	_, err := services.Postgres(t.Context(), services.PostgresConfig{})
	if err == nil || !strings.HasPrefix(err.Error(), "mvn is not on the PATH: Maven fetches PostgreSQL 18.1; install it") {
		t.Errorf("got %v", err)
	}
}

func TestOwnServersAreTakenAndNothingIsFetched(t *testing.T) {
	if testing.Short() {
		t.Skip("asks for servers, which -short has none of")
	}
	stand(t, "", "")
	t.Setenv(services.KafkaVariable, "a:1,b:2")
	if got := servicestest.Kafka(t); !slices.Equal(got, []string{"a:1", "b:2"}) {
		t.Errorf("got %v", got)
	}
}

func TestOwnPostgresGivesDatabasesToo(t *testing.T) {
	own := servicestest.OwnPostgres(t, services.PostgresConfig{})
	host := strings.TrimPrefix(strings.Split(own.DSN(), "/postgres?")[0], "postgres://postgres@")
	name, port, _ := strings.Cut(host, ":")
	for _, dsn := range []string{own.DSN(), fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable", name, port)} {
		t.Setenv(services.PostgresVariable, dsn)
		got := query(t, servicestest.Postgres(t, services.PostgresCurrent), "SELECT current_database() || ' ' || current_setting('port')")
		if !strings.HasPrefix(got, "unisink_test_") || !strings.HasSuffix(got, " "+port) {
			t.Errorf("%s gave %s", dsn, got)
		}
	}
}

func TestArchiveCannotWriteOutsideItsDirectory(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, headers := range [][]tar.Header{
		{{Name: "../out", Typeflag: tar.TypeReg}},
		{{Name: "a/../../out", Typeflag: tar.TypeReg}},
		{{Name: "up", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "up/out", Typeflag: tar.TypeReg}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := services.Untar(&b, inside); err == nil {
			t.Errorf("%v was unpacked", headers)
		}
		gone(t, filepath.Join(dir, "out"))
	}
}

func FuzzUntarStaysInside(f *testing.F) {
	f.Add("up", "..", byte(tar.TypeSymlink), "up/out")
	f.Add("a", "../out", byte(tar.TypeLink), "a")
	f.Add("bin/", "", byte(tar.TypeDir), "bin/x")
	f.Add("/", "", byte(tar.TypeDir), "./../out")
	f.Fuzz(func(t *testing.T, first, link string, kind byte, second string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{
			{Name: first, Linkname: link, Typeflag: kind, Mode: 0o755},
			{Name: second, Typeflag: tar.TypeReg, Mode: 0o755},
		} {
			_ = w.WriteHeader(&h) // what cannot be said in an archive is left out
		}
		_ = w.Flush()
		dir := t.TempDir()
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = services.Untar(bytes.NewReader(b.Bytes()), inside) // refusing is fine
		if got := names(t, dir); !slices.Equal(got, []string{"inside"}) {
			t.Errorf("it wrote %v", got)
		}
	})
}

func FuzzNumbers(f *testing.F) {
	f.Add("12 345 ")
	f.Add("")
	f.Add("-1 x")
	f.Fuzz(func(t *testing.T, text string) {
		pids, err := services.Numbers(text)
		if err == nil && len(pids) != len(strings.Fields(text)) {
			t.Errorf("%q became %v", text, pids)
		}
		for _, pid := range pids {
			if pid <= 0 {
				t.Errorf("%q holds %d, which is a whole group to signals", text, pid)
			}
		}
	})
}

func TestDirectoryOfADeadProcessIsRemovedAndOfALivingOneKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ours, remove, err := services.TempDir("unisink-left-")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asProcess, "leave-directory")
	out, err := exec.CommandContext(t.Context(), os.Args[0]).CombinedOutput()
	left := strings.TrimSpace(string(out))
	if err != nil || filepath.Dir(left) != os.TempDir() {
		t.Fatalf("it said %q: %v", out, err)
	}
	_, removeThird, err := services.TempDir("unisink-left-")
	if err != nil {
		t.Fatal(err)
	}
	gone(t, left)
	if _, err := os.Stat(ours); err != nil {
		t.Error(err)
	}
	if err := errors.Join(remove(), remove(), removeThird()); err != nil {
		t.Error(err)
	}
	gone(t, ours)
}

func TestPortTakenMeanwhileIsChosenAgain(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("java.net.BindException: Address already in use\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err := services.OnFreePorts(func() error {
		if tries++; tries < 3 {
			return services.Failed(errors.New("it ended"), log)
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	tries = 0
	if err := services.OnFreePorts(func() error { tries++; return errors.New("another reason") }); err == nil || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}
