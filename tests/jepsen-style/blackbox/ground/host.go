package ground

import (
	"context"
	"fmt"
	"strings"
)

// Host is where a process has a network of its own; without networks it is the machine.
type Host struct {
	g  *Ground
	nr int
}

// Direction of what is cut off.
type Direction uint8

// The directions.
const (
	directionUnset Direction = iota
	Both
	In  // what comes to the host
	Out // what the host sends
)

func (d Direction) String() string {
	return [...]string{"nowhere", "both ways", "what it hears", "what it says"}[d]
}

// AddHost makes a host. The first one makes the bridge too.
func (g *Ground) AddHost(ctx context.Context) (*Host, error) {
	h := &Host{g: g, nr: len(g.hosts) + 1}
	if !g.able.Networks {
		g.hosts = append(g.hosts, h)
		return h, nil
	}
	var steps [][]string
	if len(g.hosts) == 0 {
		steps = [][]string{
			{"link", "add", g.bridge(), "type", "bridge"},
			{"addr", "add", g.address(250) + "/24", "dev", g.bridge()},
			{"link", "set", g.bridge(), "up"},
		}
	}
	outer, inner := fmt.Sprintf("%sv%d", g.prefix(), h.nr), "eth0"
	steps = append(
		steps,
		[]string{"netns", "add", h.space()},
		[]string{"link", "add", outer, "type", "veth", "peer", "name", inner, "netns", h.space()},
		[]string{"link", "set", outer, "master", g.bridge()},
		[]string{"link", "set", outer, "up"},
		[]string{"-n", h.space(), "addr", "add", h.Address() + "/24", "dev", inner},
		[]string{"-n", h.space(), "link", "set", inner, "up"},
		[]string{"-n", h.space(), "link", "set", "lo", "up"},
	)
	for _, s := range steps {
		if err := g.command(ctx, "ip", s...); err != nil {
			return nil, fmt.Errorf("make a network for host %d: %w", h.nr, err)
		}
	}
	g.hosts = append(g.hosts, h)
	return h, nil
}

func (g *Ground) address(last int) string { return fmt.Sprintf("10.213.%d.%d", g.slot, last) }

func (h *Host) space() string { return fmt.Sprintf("%sn%d", h.g.prefix(), h.nr) }

// Address is where the host is reached by other hosts and by the machine; empty without networks.
func (h *Host) Address() string {
	if !h.g.able.Networks {
		return ""
	}
	return h.g.address(h.nr)
}

// enter leads into the network and nowhere else: `ip netns exec` would copy the mounts too, and a
// copied mount keeps a disk that has lost its power from ever being mounted anew.
func (h *Host) enter() []string { return []string{"--net=/run/netns/" + h.space()} }

// Command is what starts a program on the host: its process keeps the id it was started with.
func (h *Host) Command(program string, args ...string) (string, []string) {
	if !h.g.able.Networks {
		return program, args
	}
	return "nsenter", append(append(h.enter(), program), args...)
}

// Cut drops what goes between the host and others, without a word to either side; nil stands for
// the machine itself, where clients are. It replaces what was cut before.
func (h *Host) Cut(ctx context.Context, d Direction, others ...*Host) error {
	var from, to strings.Builder
	for _, o := range others {
		address := h.g.address(250)
		if o != nil {
			address = o.Address()
		}
		fmt.Fprintf(&from, "    ip saddr %s drop\n", address)
		fmt.Fprintf(&to, "    ip daddr %s drop\n", address)
	}
	rules := "flush ruleset\ntable ip cut {\n"
	if d != Out {
		rules += "  chain in {\n    type filter hook input priority 0\n" + from.String() + "  }\n"
	}
	if d != In {
		rules += "  chain out {\n    type filter hook output priority 0\n" + to.String() + "  }\n"
	}
	_, err := h.g.feed(ctx, rules+"}\n", "nsenter", append(h.enter(), "nft", "-f", "-")...)
	return err
}

// Heal lets everything through again.
func (h *Host) Heal(ctx context.Context) error {
	return h.g.command(ctx, "nsenter", append(h.enter(), "nft", "flush", "ruleset")...)
}
