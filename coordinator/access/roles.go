package access

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unisink/unisink/coordinator/ledger"
)

// role is what a caller may do; docs/operations.md says what each is for.
type role uint8

const (
	roleUnset role = iota
	viewer         // reads everything
	member         // takes part in one pipeline, and reads it
	client         // runs transactions by hand
	resolver       // finishes what nobody else does; reads
	operator       // makes, changes and stops pipelines, and decides what is in doubt; what viewers and clients may
	admin          // changes the group itself; what operators and resolvers may
	node           // another node of the group
)

// allPipelines in the place of a pipeline's name: the role holds for every one.
const allPipelines = "*"

var roleNames = map[role]string{
	viewer: "viewer", member: "member", client: "client", resolver: "resolver", operator: "operator", admin: "admin", node: "node",
}

func (r role) String() string { return cmp.Or(roleNames[r], "none") }

// holds reports whether whoever has the role r may do what wanted may.
func (r role) holds(wanted role) bool {
	switch r {
	case admin:
		return wanted == viewer || wanted == client || wanted == resolver || wanted == operator || wanted == admin
	case operator:
		return wanted == viewer || wanted == client || wanted == operator
	case resolver:
		return wanted == viewer || wanted == resolver
	case viewer, member, client, node:
		return wanted == r
	case roleUnset:
	}
	return false
}

// grant is a role, and of a member in which pipeline.
type grant struct {
	role     role
	pipeline string // of a member: its name, or allPipelines
}

func (g grant) String() string {
	if g.role == member {
		return "member:" + g.pipeline
	}
	return g.role.String()
}

// parseGrant reads "viewer", "member:orders", "member:*".
func parseGrant(text string) (grant, error) {
	name, pipeline, scoped := strings.Cut(text, ":")
	for r, known := range roleNames {
		switch {
		case name != known || r == node: // a node is known by its name among the nodes
		case r != member && scoped:
			return grant{}, fmt.Errorf("the role %q is for the whole group; leave out %q", name, ":"+pipeline)
		case r != member:
			return grant{role: r}, nil
		case pipeline == allPipelines:
			return grant{role: r, pipeline: pipeline}, nil
		case pipeline == "":
			return grant{}, fmt.Errorf("the role %q needs a pipeline: member:NAME, or member:* for every one", text)
		default:
			if err := ledger.CheckName("pipeline", pipeline, ledger.MaxPipeline); err != nil {
				return grant{}, fmt.Errorf("the role %q: %w", text, err)
			}
			return grant{role: r, pipeline: pipeline}, nil
		}
	}
	return grant{}, fmt.Errorf("there is no role %q; there are viewer, member:PIPELINE, client, resolver, operator and admin", text)
}

// CheckRole says what is wrong with a role as it is written; nil: nothing.
func CheckRole(text string) error {
	_, err := parseGrant(text)
	return err
}

// roleScheme begins the URIs in a certificate that name roles.
const roleScheme = "unisink:"

// certName is how the bearer of a certificate is called: its common name, else the first URI that
// names no role, else its first DNS name, else its serial number.
func certName(c *x509.Certificate) string {
	name := c.Subject.CommonName
	for _, u := range c.URIs {
		if name == "" && !strings.HasPrefix(u.String(), roleScheme) {
			name = u.String()
		}
	}
	if name == "" && len(c.DNSNames) > 0 {
		name = c.DNSNames[0]
	}
	return cmp.Or(name, "serial number "+c.SerialNumber.String())
}

// certGrants are the roles that a certificate names. A URI of ours that is none is left out, as a role
// of a newer version would be.
func certGrants(c *x509.Certificate) []grant {
	var out []grant
	for _, u := range c.URIs {
		if text, ours := strings.CutPrefix(u.String(), roleScheme); ours {
			if g, err := parseGrant(text); err == nil {
				out = append(out, g)
			}
		}
	}
	return out
}

// Roles are those that a file gives to names. With one, the roles in certificates do not count.
type Roles struct {
	byName map[string][]grant
}

// ParseRoles reads a file of roles: one name a line, as in certificates, then its roles, all apart by
// white space or tabs; a name that has spaces in it stands in double quotes. Empty lines and what
// follows # at the begin of a line are left out. Every mistake is reported at once.
func ParseRoles(content []byte) (*Roles, error) {
	r := &Roles{byName: map[string][]grant{}}
	var bad []string
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		name, rest, err := nameOf(lines.Text())
		if err != nil {
			bad = append(bad, fmt.Sprintf("line %d: %v", n, err))
			continue
		}
		if name == "" {
			continue
		}
		if _, twice := r.byName[name]; twice {
			bad = append(bad, fmt.Sprintf("line %d: %q stands there twice", n, name))
		}
		r.byName[name] = nil
		for word := range strings.FieldsSeq(rest) {
			g, err := parseGrant(word)
			if err != nil {
				bad = append(bad, fmt.Sprintf("line %d: %v", n, err))
				continue
			}
			r.byName[name] = append(r.byName[name], g)
		}
	}
	if err := lines.Err(); err != nil {
		bad = append(bad, err.Error())
	}
	if len(bad) == 0 && len(r.byName) == 0 {
		bad = append(bad, "they name nobody, so nobody could do anything")
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("the roles cannot be read: %s", strings.Join(bad, "; "))
	}
	return r, nil
}

// nameOf takes the name off a line of the file; "" if there is none.
func nameOf(line string) (name, rest string, err error) {
	line = strings.TrimSpace(line)
	switch {
	case line == "" || line[0] == '#':
		return "", "", nil
	case line[0] == '"':
		name, rest, closed := strings.Cut(line[1:], `"`)
		if !closed || name == "" {
			return "", "", errors.New("the name has no end, or nothing in it")
		}
		return name, rest, nil
	}
	at := strings.IndexAny(line, " \t")
	if at < 0 {
		return line, "", nil
	}
	return line[:at], line[at:], nil
}

// Of are the roles of a name, as they are written.
func (r *Roles) Of(name string) []string { return grantTexts(r.byName[name]) }

func grantTexts(gs []grant) []string {
	out := make([]string, len(gs))
	for i, g := range gs {
		out[i] = g.String()
	}
	slices.Sort(out)
	return out
}
