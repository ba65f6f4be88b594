package ground

// Forget gives the slot up without taking anything down, as the death of the process would.
func (g *Ground) Forget() error { return g.lock.Close() }
