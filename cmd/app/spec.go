package app

import "github.com/unisink/unisink/cmd/adapters"

// Adapter makes sources and sinks of one kind out of a specification; see [WithAdapter].
type Adapter = adapters.Adapter

// WithAdapter lets specifications name another kind of sources and sinks. One of the same kind that
// was given before is replaced.
func WithAdapter(x Adapter) Option {
	return func(a *app) {
		for i := range a.adapters {
			if a.adapters[i].Kind == x.Kind {
				a.adapters[i] = x
				return
			}
		}
		a.adapters = append(a.adapters, x)
	}
}
