package resolver

import (
	"context"
	"fmt"
	"time"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// swept takes in what came of a sweep.
func (l *lane) swept(ctx context.Context, j job, done swept) {
	s := &l.sweep
	s.flying = false
	now := time.Now()
	for _, k := range done.paid {
		l.paid[k] = now
	}
	for _, k := range done.proven {
		l.proven[k] = now
	}
	trouble := ""
	if done.err != nil && ctx.Err() == nil {
		wait := s.failed(done.err)
		s.soon = s.next
		trouble = done.err.Error()
		log := l.r.log.WarnContext
		if forPeople(done.err) {
			log = l.r.log.ErrorContext
		}
		log(ctx, "sweep not finished, trying again", obs.Resource(l.named()), obs.Attempt(s.failures), obs.Next(wait), obs.Err(done.err))
	} else {
		s.try = try{}
		trouble = l.perhaps(ctx, j, done, now)
	}
	l.mu.Lock()
	l.said.trouble = trouble
	l.mu.Unlock()
	if done.begun.IsZero() || done.err != nil && done.listing == nil {
		return // nothing was seen
	}
	l.remember(ctx, done, now)
}

// perhaps remembers the aborted branches that may be prepared, and says what one of them waits for.
func (l *lane) perhaps(ctx context.Context, j job, done swept, now time.Time) string {
	s := &l.sweep
	for k, x := range s.perhaps {
		if _, looked := j.aborted[k]; looked || !j.at.Before(x.again) { // due and not looked for: it is none any more
			delete(s.perhaps, k)
		}
	}
	for k, x := range done.perhaps {
		x.again = now.Add(perhapsAgain)
		s.perhaps[k] = x
	}
	trouble, oldest := "", ""
	for k, x := range s.perhaps {
		s.again(x.again)
		if _, found := done.perhaps[k]; !found && mutant.On("resolver/told-while-it-waits") {
			continue
		}
		if oldest == "" || k.txn < oldest { // ids begin with their time
			trouble, oldest = x.waits(k), k.txn
		}
	}
	if trouble != s.warned || now.Sub(s.warnedAt) >= warnedEach {
		s.warned, s.warnedAt = trouble, now
		if trouble == "" {
			return ""
		}
		l.r.log.WarnContext(ctx, "aborted by hand, and not proven yet", obs.Resource(l.named()), obs.Cause(trouble))
	}
	return trouble
}

// waits says what the proof of a branch waits for.
func (x perhaps) waits(k branchKey) string {
	switch {
	case x.name == "":
		return fmt.Sprintf("transaction %s was aborted, and the resource cannot list what is prepared in it: "+
			"nothing is proven until its client tells, or a person who has looked there accepts it", k.txn)
	case x.earlier:
		return fmt.Sprintf("transaction %s was aborted, and %s, prepared before a backup was restored, may be its branch: it is left alone, and nothing is "+
			"proven until a person has ended it at the resource, or has looked there and accepts it "+
			"(unisink txn resolve %s --force accept-loss --branch %s --why …)", k.txn, x.name, k.txn, k.resource)
	}
	return fmt.Sprintf("transaction %s was aborted, and %s, which does not name its transaction, may be its branch: "+
		"nothing is proven until that has ended, by the resource's own time-out or by a person at the resource", k.txn, x.name)
}

func (l *lane) named() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.text
}

// remember keeps what the last listing left: what is prepared, in doubt, or unknown.
func (l *lane) remember(ctx context.Context, done swept, now time.Time) {
	s := &l.sweep
	unknown, doubtful := map[string]time.Time{}, map[string]*doubt{}
	prepared, oldest := 0, time.Time{}
	duties := map[string]bool{} // the handles that the newest orders name
	for _, d := range l.now.duties {
		duties[d.GetHandle().GetName()] = true
	}
	if done.byHand > 0 {
		s.byHand = done.byHand
	}
	for _, x := range done.listing {
		if x.ended {
			continue
		}
		prepared++
		if !x.Since.IsZero() && (oldest.IsZero() || x.Since.Before(oldest)) {
			oldest = x.Since
		}
		switch x.sentence {
		case unisinkv1.Sentence_SENTENCE_ASK:
			txn := x.Name.Txn
			if unknown[txn] = now; !s.unknown[txn].IsZero() {
				unknown[txn] = s.unknown[txn]
			}
			s.again(unknown[txn].Add(s.byHand))
		case unisinkv1.Sentence_SENTENCE_IN_DOUBT:
			doubtful[x.Handle.Name] = l.doubted(ctx, x, x.why, now)
		case unisinkv1.Sentence_SENTENCE_COMMIT:
			// It is finished as a duty. If it is none, the ledger has it proven, and the resource shows it prepared. Of one
			// by hand that is not known while there are more duties than the orders name.
			if !duties[x.Handle.Name] && (l.now.whole || x.Name.Txn == "") {
				doubtful[x.Handle.Name] = l.doubted(ctx, x, x.why+", and has it resolved; the resource shows it prepared: it looks as if it had been set back", now)
			}
		case unisinkv1.Sentence_SENTENCE_LEAVE, unisinkv1.Sentence_SENTENCE_ROLL_BACK, unisinkv1.Sentence_SENTENCE_UNSPECIFIED:
			// Left alone; or what this sweep could not end, which the next one tries.
		}
	}
	s.unknown, s.doubtful = unknown, doubtful
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said.listedAt, l.said.prepared, l.said.oldest = done.begun, prepared, oldest
	l.said.inDoubt = nil
	for _, d := range doubtful {
		if d.seen > 1 {
			l.said.inDoubt = append(l.said.inDoubt, d.InDoubtFind)
		}
	}
}

// again makes the next sweep come no later than at.
func (s *sweeping) again(at time.Time) {
	if s.soon.IsZero() || at.Before(s.soon) {
		s.soon = at
	}
}

// doubted counts how often something was found in doubt, and tells it the second time.
func (l *lane) doubted(ctx context.Context, x judged, why string, now time.Time) *doubt {
	d := l.sweep.doubtful[x.Handle.Name]
	if d == nil {
		d = &doubt{since: now, InDoubtFind: &unisinkv1.InDoubtFind{SinceMs: now.UnixMilli()}}
	}
	d.seen++
	d.InDoubtFind = &unisinkv1.InDoubtFind{Found: found(x.Listed, l.now.ns), Why: why, SinceMs: d.since.UnixMilli()}
	switch d.seen {
	case 1:
		l.sweep.again(now.Add(lookAgain))
	case 2:
		l.r.log.ErrorContext(ctx, "found in doubt, and left alone: a person must look", obs.Branch(x.Name.String()),
			obs.Resource(x.Name.Resource), obs.Cause(why))
	}
	return d
}
