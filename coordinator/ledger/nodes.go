package ledger

// init names the group. A repeat with the same name gets the same answer.
func (m *Machine) init(s *step, b Init) {
	if m.namespace != "" {
		if b.Namespace != m.namespace || b.Incarnation != m.incarnation {
			s.refuse(Contradicts, "the group is already %q, incarnation %d; it cannot become %q, incarnation %d",
				m.namespace, m.incarnation, b.Namespace, b.Incarnation)
		}
		return
	}
	if err := CheckName("namespace", b.Namespace, MaxNamespace); err != nil {
		s.refuse(Invalid, "%v", err)
		return
	}
	m.namespace, m.incarnation, m.level = b.Namespace, b.Incarnation, 1
	m.sealHead()
}

func (m *Machine) setNode(n Node) {
	e := m.enc.reset()
	e.text("node")
	e.node(n)
	entry := m.nodes[n.ID]
	entry.Node = n
	m.seal(&entry.sum, e.sum())
	m.nodes[n.ID] = entry
}

// putNode records a node; one with nothing but an id is forgotten, so that a node that was
// removed does not hold back the feature level for ever.
func (m *Machine) putNode(s *step, b PutNode) {
	n := b.Node
	switch {
	case n.ID == "" || len(n.ID) > MaxInstance:
		s.refuse(Invalid, "a node needs an id of 1 to %d bytes", MaxInstance)
	case len(n.RaftAddress) > MaxText || len(n.ClientAddress) > MaxText || len(n.Version) > MaxInstance:
		s.refuse(Invalid, "address or version of node %q is longer than %d or %d bytes", n.ID, MaxText, MaxInstance)
	case n == Node{ID: n.ID}:
		if old, found := m.nodes[n.ID]; found {
			m.digest -= old.sum
			delete(m.nodes, n.ID)
		}
	case n.FeatureLevel < m.level:
		s.refuse(Unsupported, "node %q follows up to feature level %d, the group is at %d: update the node", n.ID, n.FeatureLevel, m.level)
	default:
		m.setNode(n)
	}
}

// raise raises the feature level when every recorded node can follow. A binary that applies it and
// can not itself stops, because from here on it would differ.
func (m *Machine) raise(s *step, b RaiseFeatureLevel) {
	if b.Level == m.level {
		return
	}
	if b.Level < m.level {
		s.refuse(Stale, "the group is already at feature level %d; it never goes back", m.level)
		return
	}
	if len(m.nodes) == 0 {
		s.refuse(Unsupported, "no node is recorded yet, so none is known to follow feature level %d", b.Level)
		return
	}
	for _, n := range m.Nodes() {
		if n.FeatureLevel < b.Level {
			s.refuse(Unsupported, "node %q follows up to feature level %d, not %d: update it first", n.ID, n.FeatureLevel, b.Level)
			return
		}
	}
	must(b.Level <= CurrentFeatureLevel, "the group went to feature level %d, this binary follows up to %d: run a newer one",
		b.Level, CurrentFeatureLevel)
	m.level = b.Level
	m.sealHead()
}
