package pool

// KnownServices is how many services have a generation of their own.
func (p *Pool[C]) KnownServices() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.services.known)
}
