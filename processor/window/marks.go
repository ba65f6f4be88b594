package window

import (
	"cmp"
	"slices"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/processor/stream"
)

// Marks holds the watermark of every split and the one of all of them together.
//
// A split's watermark is its largest event time minus Disorder. The combined one is the least of
// the splits that hold it back: all, but those that are idle and those that have ended. It never
// falls. While every split is idle or has ended it stays where it is: silence everywhere is an outage
// as likely as an end, and an outage must not make records late; and behind the last file of a
// directory the next one may appear. It is MaxWatermark when the source itself has ended.
//
// A split that has never had a record holds the combined watermark at MinWatermark until it is
// idle or has ended; then it counts for nothing until its first record.
type Marks struct {
	// Disorder is how far a record may be behind the newest of its split, milliseconds.
	Disorder int64
	// IdleAfter is how long a split that is not known to have more may be silent before it holds
	// nothing back, milliseconds; 0: it holds back for ever.
	IdleAfter int64

	splits   []mark
	index    map[stream.Split]int
	combined stream.Watermark
	// restored: the combined watermark has not been looked at since Reset.
	restored bool
}

type mark struct {
	split stream.Split
	// own is the split's watermark, MinWatermark before its first record.
	own stream.Watermark
	// quiet is for how long the source was asked in vain, milliseconds.
	quiet  int64
	behind bool // the source has more of it than was read
	idle   bool
	ended  bool
}

// Mark is the watermark of one split, as a snapshot keeps it.
type Mark struct {
	Split     stream.Split
	Watermark stream.Watermark
}

// Reset forgets everything and takes over splits, marks and the combined watermark of a snapshot.
// A mark of a split that is read no longer is dropped; a split without a mark starts at MinWatermark.
// Where the split that held the others back is gone, the combined watermark moves with the next Heard or
// Waited, and not here: what it passes must fire before it is in a snapshot again.
func (m *Marks) Reset(splits []stream.Split, marks []Mark, combined stream.Watermark) {
	m.splits = m.splits[:0]
	m.index = make(map[stream.Split]int, len(splits))
	m.combined = combined
	m.restored = true
	for _, s := range splits {
		m.Add(s)
	}
	for _, k := range marks {
		if i, ok := m.index[k.Split]; ok {
			m.splits[i].own = k.Watermark
		}
	}
}

// Add makes a split known and returns its index; one that is known keeps its own.
func (m *Marks) Add(s stream.Split) int {
	if i, ok := m.index[s]; ok {
		return i
	}
	if m.index == nil {
		m.index = make(map[stream.Split]int)
		m.combined = stream.MinWatermark
	}
	m.splits = append(m.splits, mark{split: s, own: stream.MinWatermark})
	m.index[s] = len(m.splits) - 1
	return len(m.splits) - 1
}

// Combined is the watermark of all splits together.
func (m *Marks) Combined() stream.Watermark { return m.combined }

// Observe takes the event time of the next record of a split, by index, and returns the combined
// watermark behind it. The record itself is judged by the watermark before it.
func (m *Marks) Observe(split int, eventTime int64) stream.Watermark {
	s := &m.splits[split]
	w := stream.Watermark(eventTime - m.Disorder)
	if w <= s.own {
		return m.combined
	}
	held := s.own <= m.combined
	s.own = w
	if held {
		m.combine()
	}
	return m.combined
}

// Heard says that a batch of a split came: it is not idle. Behind: the source knows of more records
// of the split than it has delivered, so that silence would not mean that it has nothing.
func (m *Marks) Heard(split int, behind bool) {
	s := &m.splits[split]
	s.quiet = 0
	s.behind = behind
	if s.idle || m.restored {
		s.idle = false
		m.combine()
	}
}

// Waited says for how long the source was asked before it delivered a batch of the split with index
// heard, or nothing (-1): every other split was silent for that long. Time in which the source was
// not asked, because the pipeline was busy or held back, does not count. It returns the combined
// watermark.
func (m *Marks) Waited(heard int, millis int64) stream.Watermark {
	if m.restored {
		m.combine()
	}
	if m.IdleAfter <= 0 || millis <= 0 {
		return m.combined
	}
	changed := false
	for i := range m.splits {
		s := &m.splits[i]
		if i == heard || s.idle || s.ended || s.behind {
			continue
		}
		s.quiet += millis
		if s.quiet >= m.IdleAfter {
			s.idle = true
			changed = true
		}
	}
	if changed {
		m.combine()
	}
	return m.combined
}

// End says that a split has no more records and holds nothing back, and returns the combined watermark.
func (m *Marks) End(split int) stream.Watermark {
	m.splits[split].ended = true
	m.combine()
	return m.combined
}

// EndAll says that the source has ended, or is to be taken for ended: the combined watermark is
// MaxWatermark until Settle.
func (m *Marks) EndAll() stream.Watermark {
	m.combined = stream.MaxWatermark
	return m.combined
}

// Settle sets the combined watermark back from MaxWatermark to w, once everything that was owed
// has fired. A snapshot must not keep MaxWatermark: the source may have more when it is opened
// again, and only what has fired is late then.
func (m *Marks) Settle(w stream.Watermark) {
	if m.combined == stream.MaxWatermark {
		m.combined = w
	}
}

// Idle counts the splits that hold nothing back because they are silent.
func (m *Marks) Idle() int {
	n := 0
	for i := range m.splits {
		if m.splits[i].idle {
			n++
		}
	}
	return n
}

// Snapshot lists the marks, sorted by split.
func (m *Marks) Snapshot() []Mark {
	out := make([]Mark, 0, len(m.splits))
	for i := range m.splits {
		out = append(out, Mark{Split: m.splits[i].split, Watermark: m.splits[i].own})
	}
	slices.SortFunc(out, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Split.Resource, b.Split.Resource), cmp.Compare(a.Split.ID, b.Split.ID))
	})
	return out
}

// combine takes the least watermark of the splits that hold it back.
func (m *Marks) combine() {
	m.restored = false
	least, holding := stream.MaxWatermark, false
	for i := range m.splits {
		if s := &m.splits[i]; !s.ended && !s.idle && !(i > 0 && mutant.On("window/every-split")) {
			holding = true
			least = min(least, s.own)
		}
	}
	if holding {
		if !mutant.On("window/watermark-never-falls") {
			least = max(m.combined, least)
		}
		m.combined = least
	}
}
