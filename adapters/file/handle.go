package file

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

const handleVersion = 1

// published is one file of a branch, as its handle and its manifest name it.
type published struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Records int64  `json:"records"`
}

// body is what a handle of this adapter carries; the manifest has the same form.
type body struct {
	Branch string      `json:"branch"`
	Files  []published `json:"files"`
}

func newHandle(identity string, name participant.BranchName, files []published) (participant.Handle, error) {
	branch := name.String()
	text, err := json.Marshal(body{Branch: branch, Files: files})
	if err != nil {
		return participant.Handle{}, fmt.Errorf("write the handle of %s: %w", branch, err)
	}
	var records int64
	for _, f := range files {
		records += f.Records
	}
	return participant.Handle{
		Kind: Kind, Version: handleVersion, Identity: identity, Alias: name.Resource, Name: branch,
		Text: fmt.Sprintf("%d records in %d files", records, len(files)), Body: text,
	}, nil
}

// readHandle checks that a handle is this directory's, and that it names nothing outside of it.
func (s *Sink) readHandle(h participant.Handle, identity string) (body, error) {
	if h.Kind != Kind || h.Version > handleVersion || h.Version == 0 {
		return body{}, fmt.Errorf("handle %s of kind %s version %d: %w", h.Name, h.Kind, h.Version, participant.ErrUnknownHandle)
	}
	if h.Identity != identity {
		return body{}, fmt.Errorf("handle %s belongs to the directory with identity %s, %s has %s: %w", h.Name, h.Identity, s.at.dir, identity, participant.ErrUnknownHandle)
	}
	if _, err := participant.ParseBranchName(h.Name); err != nil {
		return body{}, fmt.Errorf("handle of a file branch: %w: %w", participant.ErrBug, err)
	}
	var b body
	if err := json.Unmarshal(h.Body, &b); err != nil {
		return body{}, fmt.Errorf("the body of handle %s can't be read: %w: %w", h.Name, participant.ErrBug, err)
	}
	if b.Branch != h.Name {
		return body{}, fmt.Errorf("handle %s has the body of %q: %w", h.Name, b.Branch, participant.ErrBug)
	}
	for _, f := range b.Files {
		if err := checkName(h.Name, f.Name); err != nil {
			return body{}, err
		}
	}
	return b, nil
}

// checkName keeps handles, which come over the network, from naming files that are not theirs.
func checkName(branch, name string) error {
	own := filepath.Base(name) == name && strings.HasPrefix(name, branch+"-") && strings.HasSuffix(name, extension)
	if !own && !mutant.On("file/own-names-only") {
		return fmt.Errorf("handle %s names the file %q, which is not one of its own: %w", branch, name, participant.ErrBug)
	}
	return nil
}
