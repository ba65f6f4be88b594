package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// goodbye bounds the time for the end of a connection.
const goodbye = 2 * time.Second

// position is the opaque part of a position, JSON.
type position struct {
	// Key of the last row that was read, as texts; none: nothing was read.
	Key []string `json:"key,omitempty"`
	// Until is the greatest key that the table had at the start; none: it was empty.
	Until []string `json:"until,omitempty"`
	// Snapshot of the first transaction that read up to Until.
	Snapshot string `json:"snapshot,omitempty"`
	// Ended: everything up to Until was read, or the pipeline was drained; all windows have fired.
	Ended bool `json:"ended,omitempty"`
	// Behind: it had ended before, and went on.
	Behind bool `json:"behind,omitempty"`
}

func (p *position) read(from stream.Position) error {
	if len(from.Opaque) == 0 {
		return nil // before the first row
	}
	if err := json.Unmarshal(from.Opaque, p); err != nil {
		return fmt.Errorf("the position of table %s can't be read; it was written by another kind of source, or a newer version: %w: %w", from.Split.ID, participant.ErrMisconfigured, err)
	}
	return nil
}

func (p *position) write() []byte {
	text, err := json.Marshal(p)
	if err != nil { // texts alone
		panic(fmt.Sprintf("postgres: a position: %s", err))
	}
	return text
}

// begin takes what came since the end.
func (p *position) begin() {
	*p = position{Key: p.Key, Behind: true}
}

// Behind reports whether a position is of a source that had ended, or was drained, before it went on.
func Behind(p stream.Position) bool {
	var at position
	return at.read(p) == nil && at.Behind
}

// Ended reports whether a position is at the end of its source, or where it was drained.
func Ended(p stream.Position) bool {
	var at position
	return at.read(p) == nil && at.Ended
}

// LastKey is the key of the record that was read last at a position, as records have it; nil: none was.
func LastKey(p stream.Position) ([]byte, error) {
	var at position
	if err := at.read(p); err != nil || len(at.Key) == 0 {
		return nil, err
	}
	return appendKey([]byte{}, at.Key), nil
}

// Drained notes that the pipeline was drained at a position, where all windows have fired. What comes behind it may be
// late for them. The rows that were left are read by the next run.
func (s *Source) Drained(p stream.Position) stream.Position {
	var at position
	if at.read(p) != nil {
		return p // told when it is opened
	}
	at.Ended = true
	p.Opaque = at.write()
	return p
}

// snapshot says which transactions had ended: those below xmax but for the ones in the list.
type snapshot struct {
	text    string
	xmax    uint64
	running []uint64
}

func takeSnapshot(ctx context.Context, conn *pgx.Conn) (snapshot, error) {
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&text); err != nil {
		return snapshot{}, err
	}
	return readSnapshot(text)
}

// readSnapshot reads "xmin:xmax:running,…", the form of pg_snapshot.
func readSnapshot(text string) (snapshot, error) {
	s := snapshot{text: text}
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("%q is no snapshot", text)
	}
	var err error
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, fmt.Errorf("%q is no snapshot: %w", text, err)
	}
	for id := range strings.SplitSeq(parts[2], ",") {
		if id == "" {
			continue
		}
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return s, fmt.Errorf("%q is no snapshot: %w", text, err)
		}
		s.running = append(s.running, n)
	}
	return s, nil
}

// firstNormal is the least id of an ordinary transaction; below are those of the server itself, which are over.
const firstNormal = 3

// wrote reports whether a transaction had written when the snapshot was taken. Rows carry the lower half of its id; it is
// the newest with that half that now, a later snapshot, can see.
func (s snapshot) wrote(id uint32, now snapshot) bool {
	full := now.xmax&^uint64(1<<32-1) | uint64(id)
	if full >= now.xmax {
		if full < 1<<32 {
			return true
		}
		full -= 1 << 32
	}
	return id < firstNormal || full < s.xmax && !slices.Contains(s.running, full)
}
