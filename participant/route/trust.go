package route

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrForeignNode: a node showed a certificate that is not trusted here. It stands beside ErrUnreachable.
	ErrForeignNode = errors.New("the node's certificate is not trusted")
	// ErrForeignCaller: a node does not accept the certificate of this process. It stands beside ErrUnreachable.
	ErrForeignCaller = errors.New("the node does not accept the certificate")
)

// trustError says whose certificate is not trusted, and what helps.
type trustError struct {
	node string
	who  error // ErrForeignNode or ErrForeignCaller
	text string
}

func (e *trustError) Error() string {
	why := strings.TrimPrefix(e.text, "tls: ")
	if errors.Is(e.who, ErrForeignCaller) {
		return fmt.Sprintf("coordinator %s does not accept the certificate that it was shown (%s); show one that is signed by an authority of the coordinators and valid now", e.node, why)
	}
	return fmt.Sprintf("coordinator %s shows a certificate that is not trusted here (%s); trust the authority that signed it, or ask at the address that it names",
		e.node, strings.TrimPrefix(why, "failed to verify certificate: "))
}

func (e *trustError) Unwrap() []error { return []error{ErrUnreachable, e.who} }

// The two sides of a handshake in the words of crypto/tls: gRPC hands on nothing but words.
const (
	refusedHere  = "tls: failed to verify certificate: "
	refusedThere = "remote error: "
)

// distrust finds that a node's answer was no trust; nil if it was something else.
func distrust(node string, err error) *trustError {
	text := innermost(err)
	if strings.HasPrefix(text, refusedHere) {
		return &trustError{node, ErrForeignNode, text}
	}
	if _, said, found := strings.Cut(text, refusedThere); found && strings.HasPrefix(said, "tls: ") && strings.Contains(said, "certificate") {
		return &trustError{node, ErrForeignCaller, said}
	}
	return nil
}
