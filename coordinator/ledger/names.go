package ledger

import "strconv"

// name picks the word of a value; what has none shows as a number.
func name(v uint8, words ...string) string {
	if int(v) < len(words) && words[v] != "" {
		return words[v]
	}
	return strconv.Itoa(int(v))
}

func (d Desired) String() string {
	return name(uint8(d), "unset", "running", "stopping", "draining", "stopped")
}

func (o Outcome) String() string {
	return name(uint8(o), "unknown", "pending", "committed", "aborted")
}

func (v Verdict) String() string {
	return name(uint8(v), "unproven", "committed", "rolled-back")
}

func (a ForceAction) String() string {
	return name(uint8(a), "unset", "accept-loss", "write-off")
}

func (r Refusal) String() string {
	return name(uint8(r), "ok", "not-found", "stale", "fenced-off", "halted-scope", "not-desired", "backoff",
		"too-old", "too-new", "contradicts", "busy", "invalid", "unsupported")
}

func (k EffectKind) String() string {
	return name(uint8(k), "unset", "decided", "closed", "opened", "resolved", "halted", "heuristic", "txn", "pipeline")
}
