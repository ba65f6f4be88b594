package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/unisink/unisink/participant"
)

const handleVersion = 1

// maxGID is the longest name of a prepared transaction: the server takes less than 200 bytes.
const maxGID = 199

// body is what a handle of this adapter carries.
type body struct {
	Mode     string `json:"mode"`
	Database string `json:"database"`
	GID      string `json:"gid"`
	// XID is the transaction's id, 64 bits wide: with it the server's commit log can be asked. Empty in
	// staged mode, and in handles that come from a listing.
	XID    string   `json:"xid,omitempty"`
	Tables []string `json:"tables,omitempty"`
}

func newHandle(id identity, name participant.BranchName, b body) (participant.Handle, error) {
	b.GID, b.Database = name.String(), id.database
	text, err := json.Marshal(b)
	if err != nil {
		return participant.Handle{}, fmt.Errorf("write the handle of %s: %w", name, err)
	}
	what := "prepared transaction in database "
	if b.Mode == Staged.String() {
		what = "staged rows in database "
	}
	h := participant.Handle{
		Kind: Kind, Version: handleVersion, Identity: id.String(), Alias: name.Resource, Name: b.GID,
		Text: what + id.database, Body: text,
	}
	if len(b.Tables) > 0 {
		h.Text += " (" + strings.Join(b.Tables, ", ") + ")"
	}
	return h, nil
}

// readHandle checks that a handle is this database's (L5) and reads it.
func (i identity) readHandle(h participant.Handle) (body, error) {
	if h.Kind != Kind || h.Version > handleVersion || h.Version == 0 {
		return body{}, fmt.Errorf("handle %s of kind %s version %d: %w", h.Name, h.Kind, h.Version, participant.ErrUnknownHandle)
	}
	if h.Identity != i.String() {
		return body{}, fmt.Errorf("handle %s belongs to the database with identity %s; database %s at %s has %s: %w", h.Name, h.Identity, i.database, i.where, i, participant.ErrUnknownHandle)
	}
	if _, err := participant.ParseBranchName(h.Name); err != nil {
		return body{}, fmt.Errorf("handle of a branch in PostgreSQL: %w: %w", participant.ErrBug, err)
	}
	var b body
	if err := json.Unmarshal(h.Body, &b); err != nil {
		return body{}, fmt.Errorf("the body of handle %s can't be read: %w: %w", h.Name, participant.ErrBug, err)
	}
	if b.GID != h.Name {
		return body{}, fmt.Errorf("handle %s has the body of %q: %w", h.Name, b.GID, participant.ErrBug)
	}
	if _, err := strconv.ParseUint(b.XID, 10, 64); b.XID != "" && err != nil {
		return body{}, fmt.Errorf("handle %s has %q for a transaction id: %w", h.Name, b.XID, participant.ErrBug)
	}
	if _, err := ParseMode(b.Mode); err != nil {
		return body{}, fmt.Errorf("handle %s: %w: %w", h.Name, participant.ErrUnknownHandle, err)
	}
	return b, nil
}

// checkGID refuses names that the server would refuse, when the member opens the database and not
// in the middle of its first epoch (I7).
func checkGID(name string) error {
	if len(name) > maxGID {
		return fmt.Errorf("the name %s has %d bytes, and PostgreSQL takes %d for a prepared transaction; shorten the namespace, pipeline, member or resource: %w",
			name, len(name), maxGID, participant.ErrMisconfigured)
	}
	return nil
}

// literal is a string as SQL writes it: names of prepared transactions can't be parameters. Branch names have no
// quotes in them; they are quoted all the same.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
