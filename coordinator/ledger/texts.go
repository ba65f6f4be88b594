package ledger

import "strings"

// ownTexts gives new branches texts of their own. Those of a command share the bytes that it was decoded from, so a
// single one that is kept would keep them all. What reads as it does in like, the branches of the epoch before,
// shares the texts of that one: of most names there is then one copy for each scope.
func ownTexts(bs, like []Branch) {
	for i := range bs {
		texts := textsOf(&bs[i])
		if i < len(like) {
			for j, old := range textsOf(&like[i]) {
				if *texts[j] == *old {
					*texts[j] = *old
					texts[j] = nil
				}
			}
		}
		joinTexts(texts[:])
	}
}

func textsOf(b *Branch) [7]*string {
	return [...]*string{
		&b.ID.Member, &b.ID.Resource,
		&b.Handle.Kind, &b.Handle.Identity, &b.Handle.Alias, &b.Handle.Name, &b.Handle.Text,
	}
}

// joinTexts copies the texts, those that are not nil, into one piece of memory.
func joinTexts(texts []*string) {
	size := 0
	for _, t := range texts {
		if t != nil {
			size += len(*t)
		}
	}
	var joined strings.Builder
	joined.Grow(size)
	for _, t := range texts {
		if t != nil {
			joined.WriteString(*t)
		}
	}
	rest := joined.String()
	for _, t := range texts {
		if t != nil {
			*t, rest = rest[:len(*t)], rest[len(*t):]
		}
	}
}
