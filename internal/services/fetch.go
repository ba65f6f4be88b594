package services

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ulikunitz/xz"
)

// artifact is what Maven knows a jar by.
type artifact struct {
	group, name, version string
}

const (
	install     = "install it (Debian: apt-get install %s; macOS: brew install %s)"
	fetchTries  = 3
	fetchPause  = time.Second // before the second try; doubled before each further one
	errorLines  = 12          // of Maven's output in an error
	tailLines   = 25          // of a server's log in an error
	bufferBytes = 1 << 20
	maxFile     = 100 << 20 // bytes of one file in an archive; the largest has a third of it
)

// missing returns the sentence for a program that is not there.
func missing(program, need, debian, brew, instead string) error {
	return fmt.Errorf("%s is not on the PATH: %s; "+install+", or name a running server in %s", program, need, debian, brew, instead)
}

// maven runs one goal in a directory, again when it fails, because registries do.
func maven(ctx context.Context, dir, what, instead string, args ...string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return missing("mvn", "Maven fetches "+what, "maven", "maven", instead)
	}
	pause := fetchPause
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, "mvn", append([]string{"-q", "-B"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("fetch %s: %w", what, context.Cause(ctx))
		case try == fetchTries:
			return fmt.Errorf("fetch %s: Maven failed %d times: %w; it said last:\n%s", what, try, err, lastLines(string(out), errorLines))
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("fetch %s: %w", what, err)
		}
		pause *= 2
	}
}

// fetchKafka fetches a version with all jars it needs and returns the directory that holds them.
func fetchKafka(ctx context.Context, version string) (string, error) {
	what := "Apache Kafka " + version
	dir, err := cached(ctx, "kafka-"+version, func(ctx context.Context, dir string) error {
		pom := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(pom, []byte(kafkaPOM(version)), 0o644); err != nil {
			return fmt.Errorf("write what to fetch: %w", err)
		}
		return maven(ctx, dir, what, KafkaVariable, "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "lib"))
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "lib"), nil
}

// kafkaPOM returns the Maven project that depends on a version of Kafka and on something that
// writes its log: Kafka 3 speaks to version 1 of log4j, Kafka 4 to version 2.
func kafkaPOM(version string) string {
	needs := []artifact{{"org.apache.kafka", "kafka_2.13", version}}
	if oldLogging(version) {
		needs = append(needs, artifact{"org.slf4j", "slf4j-reload4j", "1.7.36"})
	} else {
		needs = append(needs, artifact{"org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"})
	}
	var b strings.Builder
	b.WriteString("<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n" +
		"  <groupId>unisink</groupId><artifactId>services</artifactId><version>1</version>\n  <dependencies>\n")
	for _, a := range needs {
		fmt.Fprintf(&b, "    <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", a.group, a.name, a.version)
	}
	b.WriteString("  </dependencies>\n</project>\n")
	return b.String()
}

func oldLogging(kafkaVersion string) bool { return strings.HasPrefix(kafkaVersion, "3.") }

// fetchPostgres fetches the binaries of a version for this machine and returns the directory
// that holds bin, lib and share.
func fetchPostgres(ctx context.Context, version string) (string, error) {
	platform, err := postgresPlatform(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	what := "PostgreSQL " + version
	return cached(ctx, "postgres-"+version+"-"+platform, func(ctx context.Context, dir string) error {
		jars := filepath.Join(dir, "jars")
		name := "io.zonky.test.postgres:embedded-postgres-binaries-" + platform + ":" + version + ".0"
		if err := maven(ctx, dir, what, PostgresVariable, "dependency:copy", "-Dartifact="+name, "-DoutputDirectory="+jars); err != nil {
			return err
		}
		found, err := filepath.Glob(filepath.Join(jars, "*.jar"))
		if err != nil || len(found) != 1 {
			return errors.Join(err, fmt.Errorf("fetch %s: Maven left %d jars, want one", what, len(found)))
		}
		if err := unpack(found[0], dir); err != nil {
			return fmt.Errorf("unpack %s: %w", what, err)
		}
		return os.RemoveAll(jars)
	})
}

// postgresPlatform returns how the artifacts name a machine.
func postgresPlatform(system, processor string) (string, error) {
	switch system + "/" + processor {
	case "linux/amd64", "darwin/amd64":
		return system + "-amd64", nil
	case "linux/arm64", "darwin/arm64":
		return system + "-arm64v8", nil
	}
	return "", fmt.Errorf("there is no PostgreSQL to fetch for %s/%s: name a running server in %s", system, processor, PostgresVariable)
}

// unpack unpacks the one .txz archive of a jar into dir.
func unpack(jar, dir string) error {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".txz") {
			continue
		}
		packed, err := f.Open()
		if err != nil {
			return err
		}
		defer packed.Close()
		plain, err := xz.NewReader(bufio.NewReaderSize(packed, bufferBytes))
		if err != nil {
			return err
		}
		return untar(plain, dir)
	}
	return fmt.Errorf("%s holds no .txz archive", filepath.Base(jar))
}

// untar writes an archive below dir and refuses names that lead out of it.
func untar(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		if name == "." {
			continue
		}
		if err := entry(root, archive, h, name); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func entry(root *os.Root, archive io.Reader, h *tar.Header, name string) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeReg:
		if h.Size > maxFile {
			return fmt.Errorf("it has %d bytes, more than any file of a server", h.Size)
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(h.Mode)&0o755|0o444)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		return errors.Join(err, f.Close())
	}
	return nil // devices and the like are nobody's
}
