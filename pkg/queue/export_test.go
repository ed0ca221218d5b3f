package queue

// Crash ends the engine as a killed process would: nothing is written, nobody is
// told. The caller has closed the connection.
func (e *Engine) Crash() {
	e.stopping.Store(true)
	e.endAll()
	for _, it := range e.all() {
		it.mu.Lock()
		l := it.lane
		it.mu.Unlock()
		if l != nil {
			<-l.done
		}
	}
}

// Sweep is one sweep, now.
func (e *Engine) Sweep() { e.sweep(e.pullCtx) }

// LaneOpen reports whether the item's lane is open here.
func (it *Item) LaneOpen() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.lane != nil
}

// Claims counts the room set aside.
func (e *Engine) Claims() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.claims)
}
