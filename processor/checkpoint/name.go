package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/unisink/unisink/participant"
)

// partName is what an id says: "<member>.<operator>.<generation>.<n>.<index>". Generations come from one
// counter of the ledger, so an id belongs to one member and one epoch, for ever. In the store
// "<pipeline>.<shard>." stands before it, and Claim sees to it that one group has them.
type partName struct {
	member, operator     string
	generation, n, index uint64
}

// parsePart reads whose a part is; ids are parsed, never matched by prefix (L9).
func parsePart(id string) (p partName, ok bool) {
	f := strings.Split(id, ".")
	if len(f) != 5 {
		return p, false
	}
	p.member, p.operator = f[0], f[1]
	for i, to := range []*uint64{&p.generation, &p.n, &p.index} {
		v, err := strconv.ParseUint(f[2+i], 10, 64)
		if err != nil {
			return p, false
		}
		*to = v
	}
	return p, true
}

func (c *Config) id(b participant.Barrier, index int) string {
	return fmt.Sprintf("%s.%s.%d.%d.%d", c.Member, c.Operator, b.Generation, b.N, index)
}
